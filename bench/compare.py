"""quern beside llama.cpp: every row of the table in docs/performance.md, measured in turn.

Started by compare_llama.sh.  A row is a few series; in each run every series is measured once, one after
the other, so that what else the machine does meets all of them.  Figures are medians."""
import argparse
import csv
import pathlib
import platform
import re
import statistics
import subprocess
import sys

from measure import Programs

BENCH = pathlib.Path(__file__).parent
SHAPE = dict(n_linear=18, n_v_heads=16, n_k_heads=16, d=128, n_attention=6, n_kv=2, head_dim=256)
ROTATE_MIB = 2304
FAST_TYPES = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k",
              "iq4_nl", "iq4_xs", "mxfp4"]
LLAMA_MATMUL = "type_a=%s,type_b=f32,m=4096,n=%d,k=14336,bs=\\[1,1\\],nr=\\[1,1\\]"
GDN = "head_count=32,head_size=128,n_seq_tokens=%d,n_seqs=1,v_repeat=1,permuted=0,kda=0"
LLAMA_ATTENTION = "hsk=256,hsv=256,nh=4,nr23=\\[6,1\\],kv=4096,nb=%d,.*type_K=f16"


def processor():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def medians(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def memory_stayed(run):
    """Whether memory gave the same before and behind: some machines' goes from one rate to another meanwhile."""
    return abs(run["read"] - run["read_behind"]) < 0.1 * run["read"]


def mean_read(run):
    return (run["read"] + run["read_behind"]) / 2


class Table:
    def __init__(self, options):
        self.options = options
        self.programs = Programs(options.quern, options.llama, options.threads)
        self.csv = open(options.csv, "w", newline="") if options.csv else None
        self.keep("row", "series", "run", "value")

    def keep(self, *cells):
        """A raw number, in the file at once: a run that is cut short keeps what it has."""
        if self.csv:
            csv.writer(self.csv, lineterminator="\n").writerow(cells)
            self.csv.flush()

    def model(self, shape, kind):
        path = pathlib.Path(self.options.models) / ("%s-%s.gguf" % (shape.replace("/", "-"), kind))
        if not path.exists():
            subprocess.run([sys.executable, BENCH / "random_model.py", shape, kind, path],
                           check=True, stdout=subprocess.DEVNULL)
        return path

    def wanted(self, name):
        return re.search(self.options.only, name) is not None

    def turns(self, name, counts, **functions):
        """What each function gives, all called in turn, of as many runs as are wanted.  Runs that do not count are
        done again, up to as many."""
        done, runs = [], self.options.runs
        while len(done) < 2 * runs and sum(map(counts, done)) < runs:
            done.append({})
            for key, function in functions.items():
                done[-1][key] = function()
                self.keep(name, key, len(done) - 1, "%.6g" % done[-1][key])
        return [run for run in done if counts(run)] or done

    def series(self, name, **functions):
        """Medians of that."""
        return medians(self.turns(name, lambda run: True, **functions))

    def add(self, name, quern, peer, ratio, target, reached):
        """One line of the table; reached: None where the target does not apply."""
        cells = [name, quern, peer, "%.2f x" % ratio if ratio else "", target,
                 {True: "yes", False: "no", None: ""}[reached]]
        print("| " + " | ".join(cells) + " |", flush=True)

    # --- whole models ---

    def read_bandwidth(self, mib=ROTATE_MIB, threads=None):
        run = self.programs.op("copy", "", mib, threads)
        self.keep("peaks", "read GB/s", 0, "%.4g" % run["peak_read_gb_s"])
        return run["peak_read_gb_s"] * 1e9

    def decode_bytes(self, path, depth):
        """Weights, S0 and open rows of a token on average, keys and values."""
        s = SHAPE
        state = s["n_linear"] * s["n_v_heads"] * s["d"] ** 2 * 4
        rows = s["n_linear"] * (s["n_k_heads"] + s["n_v_heads"]) * s["d"] * 32 * 4
        kv = s["n_attention"] * s["n_kv"] * s["head_dim"] * 2 * 2 * depth
        return path.stat().st_size + state + rows + kv

    def decode(self, kind, depth=0):
        name = "decode 0.8B %s%s" % (kind, " at depth %d" % depth if depth else "")
        if not self.wanted(name):
            return
        path, p = self.model("0.8B", kind), self.programs
        runs = self.turns(name, memory_stayed, read=self.read_bandwidth,
                          quern=lambda: p.model(path, n_gen=128, depth=depth),
                          read_behind=self.read_bandwidth,
                          llama=lambda: p.llama_model(path, n_gen=128 if not depth else 64,
                                                      depth=depth))
        v, n_bytes = medians(runs), self.decode_bytes(path, depth)
        bound = statistics.median(mean_read(run) for run in runs) / n_bytes
        share = statistics.median(run["quern"] / mean_read(run) for run in runs) * n_bytes
        ratio = v["quern"] / v["llama"]
        if depth:
            target, reached = "1.8 x or 85 % of the bound", ratio >= 1.8 or share >= 0.85
        else:
            target = "85 % of the bound; 1.5 x or 92 %"
            reached = share >= 0.85 and (ratio >= 1.5 or share >= 0.92)
        self.add(name, "%.1f tok/s (%.0f %% of what memory allowed, about %.1f)" % (v["quern"], 100 * share, bound),
                 "%.1f" % v["llama"], ratio, target, reached)

    def prefill(self, kind, n):
        name = "prefill 0.8B %s pp%d" % (kind, n)
        if not self.wanted(name):
            return
        path, p = self.model("0.8B", kind), self.programs
        v = self.series(name, quern=lambda: p.model(path, n_prompt=n),
                        llama=lambda: p.llama_model(path, n_prompt=n))
        amx = "amx_int8" in open("/proc/cpuinfo").read()
        wants = (5 if amx else 2) if kind == "BF16" else (6 if amx else 3.5)
        ratio = v["quern"] / v["llama"]
        self.add(name, "%.0f tok/s" % v["quern"], "%.0f" % v["llama"], ratio, "%g x" % wants,
                 ratio >= wants)

    def sequences(self, n):
        name = "decode of %d sequences, 0.8B Q4_K" % n
        if not self.wanted(name):
            return
        path, p = self.model("0.8B", "Q4_K"), self.programs
        v = self.series(name, one=lambda: p.model(path, n_gen=64, sequences=1),
                        quern=lambda: p.model(path, n_gen=64, sequences=n),
                        llama=lambda: p.llama_batch(path, n, 64))
        ratio, gain = v["quern"] / v["llama"], v["quern"] / v["one"]
        self.add(name, "%.0f tok/s (%.1f x one)" % (v["quern"], gain), "%.0f" % v["llama"], ratio,
                 "4 x one; 2 x", gain >= 4 and ratio >= 2)

    def threads(self):
        name = "prefill on 2 threads over 1"
        if not self.wanted(name):
            return
        path, p = self.model("0.8B", "Q4_0"), self.programs
        v = self.series(name, one=lambda: p.model(path, n_prompt=512, threads=1),
                        two=lambda: p.model(path, n_prompt=512, threads=2))
        gain = v["two"] / v["one"]
        self.add(name, "%.2f x" % gain, "", 0, "1.85 x", gain >= 1.85)

    def moe(self):
        path, p = None, self.programs
        for test, wants in ((dict(n_gen=64), 1.5), (dict(n_prompt=512), 2.5)):
            name = "35B-A3B, 4 layers, Q4_K %s" % ("decode" if "n_gen" in test else "pp512")
            if not self.wanted(name):
                continue
            path = path or self.model("35B-A3B/4", "Q4_K")
            v = self.series(name, quern=lambda t=test: p.model(path, **t),
                            llama=lambda t=test: p.llama_model(path, **t))
            ratio = v["quern"] / v["llama"]
            self.add(name, "%.1f tok/s" % v["quern"], "%.1f" % v["llama"], ratio, "%g x" % wants,
                     ratio >= wants)

    def fairy(self):
        p = self.programs
        for kind in ("BF16", "Q8_0"):
            name = "fairy decode, 1 thread, %s" % kind
            if not self.wanted(name):
                continue
            path = pathlib.Path(self.options.models) / ("fairy-%s.gguf" % kind)
            if not path.exists():
                p.output(self.options.quern, "quantize", BENCH.parent / "models/fairy", path, kind)
            n_bytes = path.stat().st_size
            v = self.series(name, read=lambda: self.read_bandwidth(n_bytes >> 20, 1),
                            quern=lambda: p.model(path, n_gen=128, threads=1),
                            llama=lambda: p.llama_model(path, n_gen=128, threads=1))
            ratio, share = v["quern"] / v["llama"], v["quern"] * n_bytes / v["read"]
            self.add(name, "%.0f tok/s (%.0f %% of %.0f)" %
                     (v["quern"], 100 * share, v["read"] / n_bytes), "%.0f" % v["llama"], ratio,
                     "70 % of reading its bytes; 1.5 x", ratio >= 1.5 and share >= 0.7)

    def load(self):
        name = "load to first token, 0.8B Q4_0"
        if not self.wanted(name):
            return
        path, p = self.model("0.8B", "Q4_0"), self.programs
        quern = [self.options.quern, "run", "-m", path, "-p", "Once", "-n", 1, "-c", 512]
        llama = [self.options.llama + "/llama-completion", "-m", path, "-p", "Once", "-n", 1, "-c",
                 512, "-t", self.options.threads, "-no-cnv", "--no-warmup"]
        v = self.series(name, quern=lambda: p.seconds(*quern), llama=lambda: p.seconds(*llama))
        self.add(name, "%.2f s" % v["quern"], "%.2f s" % v["llama"], v["llama"] / v["quern"], "1 x",
                 v["quern"] <= v["llama"])
        share = p.peak_kib(*quern) * 1024 / path.stat().st_size
        self.add("memory at its peak, the same", "%.2f x the file" % share, "", 0, "1.15 x",
                 share <= 1.15)

    # --- ops ---

    def matvec(self, kind):
        name = "mat-vec 4096x14336 %s" % kind
        if not self.wanted(name):
            return
        form = "q8" if kind in FAST_TYPES else "bf16" if kind == "bf16" else "f32"
        case = "%s 4096x14336 M 1 %s packed" % (kind, form)
        shares, times = [], []
        for run in range(self.options.runs):
            rows, peaks = self.programs.picked("matmul", case, ROTATE_MIB)
            rows = [r for r in rows if r["case"] == case]
            shares.append(rows[0]["gb_s"] / peaks["peak_read_gb_s"])
            times.append(rows[0]["ns"] * 1e-3)
            self.keep(name, "quern us", run, "%.6g" % times[-1])
            self.keep(name, "read GB/s", run, "%.6g" % peaks["peak_read_gb_s"])
        share = statistics.median(shares)
        llama = self.llama_us(name, "MUL_MAT", LLAMA_MATMUL % (self.ggml_name(kind), 1))
        us = statistics.median(times)
        self.add(name, "%.0f us (%.0f %% of reading)" % (us, 100 * share),
                 "%.0f us" % llama if llama else "", llama / us if llama else 0, "90 %",
                 share >= 0.9)

    @staticmethod
    def ggml_name(kind):
        return kind[:-1] + "K" if kind.endswith("_k") else kind

    def llama_us(self, name, op, params):
        try:
            return self.series(name, llama_us=lambda: self.programs.llama_op_us(op, params))[
                "llama_us"]
        except RuntimeError:
            return 0  # test-backend-ops has no such case

    def matmat(self, kind, form, half_groups=False):
        """Every kernel that serves it: each against the peak of the unit that it works with."""
        name = "mat-mat 4096x14336 n 512 %s" % kind
        if not self.wanted(name):
            return
        case = "%s 4096x14336 M 512 %s" % (kind, form)
        rates, peaks = {}, {}
        for run in range(self.options.runs):
            result = self.programs.op("matmul", case)
            for r in (r for r in result["results"] if r["case"] == case):
                rates.setdefault(r["kernel"], []).append(r["gflop_s"])
                self.keep(name, r["kernel"] + " GOP/s", run, "%.6g" % r["gflop_s"])
            for key in result:
                if key.startswith("peak"):
                    peaks.setdefault(key, []).append(result[key])
        llama = self.llama_us(name, "MUL_MAT", LLAMA_MATMUL % (self.ggml_name(kind), 512))
        llama = 2 * 4096 * 14336 * 512 / llama / 1000 if llama else 0
        rates = {kernel: statistics.median(v) for kernel, v in rates.items()}
        vnni = [rate for kernel, rate in rates.items() if kernel.endswith("avx512vnni")]
        for kernel, rate in rates.items():
            unit = kernel.rsplit(".", 1)[1]
            if unit.startswith("generic") or unit.startswith("avx2"):
                continue
            if unit.startswith("amx") and form.startswith("q8"):
                share, wants, of = rate / vnni[0], 1.6, "x VNNI"
            elif unit.startswith("amx"):
                share = rate / statistics.median(peaks["peak_amx_bf16_gflop_s"])
                wants, of = 0.4, "of the tiles' peak"
            elif form.startswith("q8"):
                share = rate / statistics.median(peaks["peak_int8_gop_s"])
                wants, of = 0.5 if half_groups else 0.75, "of vpdpbusd's peak"
            else:
                share = rate / statistics.median(peaks["peak_float32_gflop_s"])
                wants, of = 0.75, "of multiply-adds' peak"
            self.add("%s, %s" % (name, unit), "%.0f GOP/s, %.2f %s" % (rate, share, of),
                     "%.0f" % llama if llama else "", rate / llama if llama else 0, "%g" % wants,
                     share >= wants)

    def op_against(self, name, op, case, llama_op, params, wants, least=None):
        """least: what of the machine's peak does as well, its name, and how much a row has of it."""
        if not self.wanted(name):
            return
        p, shares = self.programs, []

        def quern():
            rows, run = p.picked(op, case)
            if least:
                shares.append(sum(least[2](row, run) for row in rows) / len(rows))
            return sum(row["ns"] for row in rows) / len(rows) * 1e-3
        v = self.series(name, quern=quern, llama=lambda: p.llama_op_us(llama_op, params))
        ratio, text, target = v["llama"] / v["quern"], "%.0f us" % v["quern"], "%g x" % wants
        reached = ratio >= wants
        if least:
            share = statistics.median(shares)
            text += " (%.0f %% of %s)" % (100 * share, least[1])
            target += " or %.0f %%" % (100 * least[0])
            reached = reached or share >= least[0]
        self.add(name, text, "%.0f us" % v["llama"], ratio, target, reached)

    def ops(self):
        multiplies = (0.6, "multiply-adds", lambda row, run: row["float32_share"])
        copies = (0.7, "copying", lambda row, run: row["gb_s"] / run["peak_copy_gb_s"])
        for n in (64, 256, 1024):
            self.op_against("gated delta rule T %d, 32 heads" % n, "gdn_open_chunk",
                            "T %d at 0 Hk 32 Hv 32 d 128" % n, "GATED_DELTA_NET", GDN % n, 5,
                            multiplies)
        self.token_of_delta()
        self.op_against("ssm_conv T 512 C 3328", "ssm_conv", "T 512 C 3328 K 4", "SSM_CONV",
                        "ne_a=\\[515,3328", 15, copies)
        self.op_against("ssm_conv T 934 C 8192", "ssm_conv", "T 934 C 8192 K 4", "SSM_CONV",
                        "ne_a=\\[937,8192", 15, copies)
        self.op_against("attention D 256, 512 rows at 3584", "attention_paged",
                        "f16 T 512 at 3584 H 24/4 d 256", "FLASH_ATTN_EXT", LLAMA_ATTENTION % 512,
                        2)
        self.op_against("attention D 256, 1 row at 4095", "attention_paged",
                        "f16 T 1 at 4095 H 24/4 d 256", "FLASH_ATTN_EXT", LLAMA_ATTENTION % 1, 2)
        self.window()

    def token_of_delta(self):
        """Of S0 and open rows, the mean of all positions, against reading as much."""
        name = "gated delta rule T 1, all 64 positions"
        if not self.wanted(name):
            return
        p, heads, d = self.programs, 32, 128
        runs = self.turns(name, memory_stayed, read=self.read_bandwidth,
                          quern=lambda: p.picked_us("gdn_open_chunk", "Hk 32 Hv 32 d 128", 512,
                                                    "T 1 at .*"),
                          read_behind=self.read_bandwidth,
                          llama=lambda: p.llama_op_us("GATED_DELTA_NET", GDN % 1))
        v, n_bytes = medians(runs), 4 * heads * d * (d + 31.5 * 2)
        share = statistics.median(n_bytes / mean_read(run) * 1e6 / run["quern"] for run in runs)
        ratio = v["llama"] / v["quern"]
        self.add(name, "%.0f us (%.0f %% of reading)" % (v["quern"], 100 * share),
                 "%.0f us" % v["llama"], ratio, "1.5 x or 85 %", ratio >= 1.5 or share >= 0.85)

    def window(self):
        """Tiles of 64 keys that rows of 64 queries attend to: the window's against all."""
        name = "attention T 4096: window 1024 over causal"
        if not self.wanted(name):
            return
        case, p = "f16 T 4096 at 0 H 16/2 d 256", self.programs
        tiles = [min(i + 1, 17) for i in range(64)]
        wants = 1.3 * sum(tiles) / sum(range(1, 65))
        v = self.series(name, causal=lambda: p.picked_us("attention_paged", case, only=case),
                        window=lambda: p.picked_us("attention_paged", case + " window 1024"))
        share = v["window"] / v["causal"]
        self.add(name, "%.2f of its time" % share, "", 0, "%.2f" % wants, share <= wants)

    def all(self):
        kinds = ["Q4_0", "Q4_K", "Q6_K", "Q8_0", "BF16"]
        for kind in kinds:
            self.decode(kind)
        self.decode("Q4_K", 8192)
        for n in (512, 4096):
            for kind in kinds:
                self.prefill(kind, n)
        self.sequences(8)
        self.moe()
        self.fairy()
        self.threads()
        self.load()
        for kind in FAST_TYPES + ["bf16", "f16", "f32"]:
            self.matvec(kind)
        for kind in ("q4_0", "q4_k", "q8_0", "q6_k"):
            self.matmat(kind, "q8 packed", kind == "q6_k")
        self.matmat("bf16", "bf16 packed")
        self.matmat("f32", "f32 packed")
        self.ops()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quern", required=True)
    parser.add_argument("--llama", required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--csv")
    table = Table(parser.parse_args())
    version = table.programs.output(table.options.quern, "--version").strip()
    print("%s; %s, %d threads, medians of %d runs\n" %
          (version, processor(), table.options.threads, table.options.runs))
    print("| work | quern | llama.cpp | ratio | target | reached |\n|---|---|---|---|---|---|")
    table.all()


if __name__ == "__main__":
    main()

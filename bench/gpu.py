"""All rows of the table of targets on a GPU, beside their limits and peers, by one command.

    python3 bench/gpu.py [--only REGEX] [--seconds N] [--csv FILE] [--models DIR] [--peers FILE|none] [--llama DIR]

Prints a table and writes its raw numbers; a row takes a few seconds at most, and what does not fit into
--seconds is named at the end.  Peers (bench/gpu_peers.py) are measured first where python3 has torch; llama.cpp
with each model where --llama names the folder of its llama-bench, built with CUDA.  Models are files of random
weights, made one after the other in DIR and removed.  Needs numpy and build/quern."""
import argparse
import csv
import glob
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import gpu_rows
import random_model

BENCH = pathlib.Path(__file__).resolve().parent
COLUMNS = ["row", "quern", "unit", "kernel", "GB/s", "TFLOP/s", "limit", "share", "must", "must met",
           "goal", "goal met", "peers"]


def cublas_folders():
    """Where Python packages keep libcublas, for the ceiling."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations) if spec else []
    found = [glob.glob(root + "/**/libcublas.so*", recursive=True) for root in roots]
    return sorted({os.path.dirname(f) for files in found for f in files})


class Failed(Exception):
    pass


class Quern:
    def __init__(self, options):
        self.options = options

    def output(self, *words, limit=180, env=None):
        command = [self.options.quern, "bench", "--device", self.options.device, "-o", "json", *words]
        try:
            done = subprocess.run([str(w) for w in command], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=limit, env=env)
        except subprocess.TimeoutExpired:
            raise Failed("longer than %d s" % limit)
        if done.returncode != 0:
            raise Failed(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else
                         "ended with %d" % done.returncode)
        return json.loads(done.stdout)

    def rotate(self):
        return ["--rotate", self.options.rotate] if self.options.rotate else []

    def ceilings(self):
        """Copy bandwidth and the rate of bf16 products (0: no library for them)."""
        path = ":".join(cublas_folders() + [os.environ.get("LD_LIBRARY_PATH", "")])
        run = self.output("--op", "copy", "--case", "512x4096", "--seconds", 0.1, *self.rotate(),
                          env=dict(os.environ, LD_LIBRARY_PATH=path))
        return run["peak_copy_gb_s"] * 1e9, run["peak_bf16_gflop_s"] * 1e9

    def op(self, case):
        """What is timed of one case: rows of kernels; the one that is taken, or all."""
        op, find, sizes, name = case
        kernel = [] if self.options.all_kernels else ["--kernel", "picked"]
        run = self.output("--op", op, "--case", find, "--sizes", ",".join(map(str, sizes)),
                          "--seconds", self.options.row_seconds, *self.rotate(), *kernel)
        return [r for r in run["results"] if r["case"] == name]

    def model(self, path, prompts, generations, depth, sequences):
        """Tokens a second of each test, by tokens of the prompt and to generate."""
        lists = [",".join(map(str, n)) or "0" for n in (prompts, generations)]
        run = self.output(path, "-p", lists[0], "-n", lists[1], "-d", depth, "-B", sequences, "-r", 3,
                          "-b", self.options.batch, limit=300)
        return {(t["n_prompt"], t["n_gen"]): t["avg_ts"] for t in run}


class Llama:
    """llama-bench with all layers on the GPU."""

    def __init__(self, folder):
        self.folder = folder

    def rate(self, path, n_prompt, n_gen, depth):
        command = [self.folder + "/llama-bench", "-m", path, "-p", n_prompt, "-n", n_gen, "-d", depth,
                   "-r", 3, "-ngl", 99, "-fa", 1, "-b", 2048, "-ub", 2048, "-o", "json"]
        env = dict(os.environ, LD_LIBRARY_PATH=self.folder + ":" + os.environ.get("LD_LIBRARY_PATH", ""))
        try:
            done = subprocess.run([str(w) for w in command], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=env, timeout=300)
            return json.loads(done.stdout)[0]["avg_ts"]
        except (subprocess.TimeoutExpired, ValueError, LookupError) as e:
            raise Failed("llama-bench: %s" % (str(e) or repr(e)))


class Table:
    def __init__(self, options):
        self.options, self.quern = options, Quern(options)
        self.llama = Llama(options.llama) if options.llama else None
        self.end = time.monotonic() + options.seconds
        self.value, self.left, self.peers, self.rates = {}, [], {}, {}
        self.rows = [r for r in gpu_rows.all_rows() if re.search(options.only, r["name"])]
        self.made = None  # the model that is there
        pathlib.Path(options.csv).parent.mkdir(parents=True, exist_ok=True)
        self.csv = open(options.csv, "w", newline="")
        self.keep(COLUMNS)

    def keep(self, cells):
        csv.writer(self.csv, lineterminator="\n").writerow(cells)
        self.csv.flush()

    def seconds_left(self):
        return self.end - time.monotonic()

    # --- peers and ceilings ---

    def measure_peers(self):
        path = self.options.peers
        if path == "none":
            return
        if path == "run":
            path = self.options.csv.replace(".csv", "") + "-peers.csv"
            limit = min(self.options.seconds / 3, 240)
            try:
                subprocess.run([sys.executable, BENCH / "gpu_peers.py", "--csv", path, "--only",
                                self.options.only, "--seconds", str(limit)], timeout=limit + 60)
            except subprocess.TimeoutExpired:
                print("peers took too long; what they have is used")
        with open(path, newline="") as f:
            for r in csv.DictReader(f):
                self.peers.setdefault(r["row"], {})[r["peer"]] = float(r["us"])

    def measure_ceilings(self):
        self.copy, self.matrix = self.quern.ceilings()
        torch = self.peers.get("bf16 product 8192", {})
        for us in torch.values():
            self.matrix = max(self.matrix, 2 * 8192 ** 3 / us * 1e6)
        print("copy %.0f GB/s, bf16 product of 8192 %.0f TFLOP/s\n" % (self.copy / 1e9,
                                                                     self.matrix / 1e12))
        self.keep(["ceilings", "", "", "", "%.5g" % (self.copy / 1e9),
                   "%.5g" % (self.matrix / 1e12)] + [""] * 7)

    # --- one row ---

    def peers_of(self, row):
        """Of this run where there are any, else published ones."""
        live = self.peers.get(row["name"], {})
        return {**row["published"], **live}, set(live)

    def bound(self, row, kind, time_like):
        """What must (or goal) wants: a time at most or a rate at least, and in words."""
        peers, _ = self.peers_of(row)
        if row.get(kind + "_us"):
            return row[kind + "_us"], "%.4g us" % row[kind + "_us"]
        if kind + "_peer" in row:
            name, part = row[kind + "_peer"]
            return ((part * peers[name], "%.2f of %s" % (part, name)) if name in peers
                    else (None, ""))
        if kind + "_ratio" in row:
            wants = row[kind + "_ratio"] * next(iter(peers.values()))
            return wants, "%g x" % row[kind + "_ratio"]
        if kind + "_of" in row:
            name, part = row[kind + "_of"]
            wants = part * self.value[name] if name in self.value else None
            return wants, "%.3g of %s" % (part, name)
        return None, ""

    def verdict(self, row, kind, value, share, time_like):
        if kind + "_share" in row:
            wants = row[kind + "_share"]
            return "%g %%" % (100 * wants), share >= wants if share else None
        wants, words = self.bound(row, kind, time_like)
        if wants is None:
            return words, None
        return words, value <= wants if time_like else value >= wants

    def add(self, row, value, unit, kernel="", gb=0, tflops=0, limit="", share=0):
        time_like = unit == "us"
        self.value[row["name"]] = value
        must, must_met = self.verdict(row, "must", value, share, time_like)
        goal, goal_met = self.verdict(row, "goal", value, share, time_like)
        peers, live = self.peers_of(row)
        said = ", ".join("%s%s %.4g (%.2f x)" % (name, "" if name in live else "*", v,
                                                v / value if time_like else value / v)
                         for name, v in peers.items() if v)
        met = {True: "yes", False: "no", None: ""}
        cells = [row["name"], "%.5g" % value, unit, kernel, "%.5g" % gb if gb else "",
                 "%.5g" % tflops if tflops else "", limit, "%.3f" % share if share else "", must,
                 met[must_met], goal, met[goal_met], said]
        self.keep(cells)
        print("| " + " | ".join(cells) + " |", flush=True)

    def op_row(self, row):
        results, why = [], "no such case"
        for case in row["cases"]:
            try:
                results += self.quern.op(case)
            except Failed as e:
                why = str(e)
        if not results:
            raise Failed(why)
        for r in results if self.options.all_kernels else []:
            print("    %s: %s %.2f us%s" % (r["case"], r["kernel"], r["ns"] * 1e-3,
                                           " *" if r["picked"] else ""))
        best = min((r for r in results if r["picked"]), key=lambda r: r["ns"])
        if best["wrote_nan"]:
            print("    %s writes NaN" % best["kernel"])
        ns = best["ns"]
        flops = row.get("flops", best.get("gflop_s", 0) * ns) / ns * 1e9
        n_bytes = row.get("bytes", best.get("gb_s", 0) * ns) / ns * 1e9
        limit, share = "", 0
        if row["limit"] == "copy":
            limit, share = "%.0f GB/s" % (self.copy / 1e9), n_bytes / self.copy
        elif row["limit"] == "matrix" and self.matrix:
            limit, share = "%.0f TFLOP/s" % (self.matrix / 1e12), flops / self.matrix
        elif row["limit"] == "time" and self.matrix:
            least = max(row["flops"] / self.matrix, row["bytes"] / self.copy)
            limit, share = "%.4g us" % (least * 1e6), least * 1e9 / ns
        self.add(row, ns * 1e-3, "us", best["kernel"] + ("" if best["samples"] > 2 else " (once)"),
                 n_bytes / 1e9, flops / 1e12, limit, share)

    def model_file(self, shape, kind):
        path = pathlib.Path(self.options.models) / ("%s-%s.gguf" % (shape.replace("/", "-"), kind))
        if self.made and self.made != path:
            self.made.unlink()
            self.made = None
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.made = path
            begin = time.monotonic()
            random_model.write(shape, kind, path)
            print("    %s made in %.0f s" % (path, time.monotonic() - begin), flush=True)
        return path

    def model_rate(self, row):
        """Tests at one depth are run together, since a model takes long to load."""
        n_prompt, n_gen, depth, sequences = row["test"]
        key = row["model"], depth, sequences
        if key not in self.rates:
            path = self.model_file(*row["model"])
            tests = [r["test"] for r in self.rows if "model" in r and
                     (r["model"], r["test"][2], r["test"][3]) == key]
            try:
                self.rates[key] = self.quern.model(path, [t[0] for t in tests if t[0]],
                                                   [t[1] for t in tests if t[1]], depth, sequences)
            except Failed:
                self.rates[key] = {}
                if len(tests) == 1:
                    raise
        if (n_prompt, n_gen) not in self.rates[key]:  # together they failed
            path = self.model_file(*row["model"])
            self.rates[key].update(self.quern.model(path, [n_prompt][:n_prompt], [n_gen][:n_gen],
                                                    depth, sequences))
        return self.rates[key][n_prompt, n_gen]

    def measure_llama(self, row):
        n_prompt, n_gen, depth, sequences = row["test"]
        if not self.llama or sequences > 1:
            return
        try:
            found = self.llama.rate(self.model_file(*row["model"]), n_prompt, n_gen, depth)
            self.peers.setdefault(row["name"], {})["llama.cpp"] = found
        except Failed as e:
            print("    %s" % e, flush=True)

    def model_row(self, row):
        shape, kind = row["model"]
        if self.seconds_left() < 60:
            raise Failed("no time for a model")
        rate = self.model_rate(row)
        self.measure_llama(row)
        gb = tflops = share = 0
        limit = ""
        if row["limit"] == "read":
            n = gpu_rows.read_bytes(shape, kind, row["depth"])
            gb, share, limit = rate * n / 1e9, rate * n / self.copy, "%.4g tok/s" % (self.copy / n)
        elif row["limit"] == "matrix" and self.matrix:
            tflops = rate * gpu_rows.token_flops(shape) / 1e12
            limit, share = "%.0f TFLOP/s" % (self.matrix / 1e12), tflops * 1e12 / self.matrix
        self.add(row, rate, "tok/s", "", gb, tflops, limit, share)

    # --- all rows ---

    def run(self):
        print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
        for row in self.rows:
            if self.seconds_left() < 10:
                self.left.append(row["name"])
                continue
            try:
                (self.model_row if "model" in row else self.op_row)(row)
            except Failed as e:
                self.keep([row["name"], "failed: %s" % e] + [""] * (len(COLUMNS) - 2))
                print("| %s | failed: %s |" % (row["name"], e), flush=True)
        if self.made:
            self.made.unlink()
        print("\n*: published, not of this run.  Peers: %s." % "us or tok/s, and how many times quern")
        if self.left:
            print("\nnot measured, no time was left: " + "; ".join(self.left))


def models_folder():
    """Memory, if there is room for the largest one."""
    shm = "/dev/shm"
    return shm if os.path.isdir(shm) and shutil.disk_usage(shm).free > 30e9 else "build/bench"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quern", default=str(BENCH.parent / "build/quern"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name has this")
    parser.add_argument("--seconds", type=float, default=540, help="for all rows together")
    parser.add_argument("--row-seconds", type=float, default=2, help="for a kernel")
    parser.add_argument("--rotate", type=int, default=0, metavar="MIB", help="as of quern bench")
    parser.add_argument("--all-kernels", action="store_true", help="not only the one that is taken")
    parser.add_argument("--batch", type=int, default=4096, help="of prompts of models")
    parser.add_argument("--peers", default="run", help="a file of gpu_peers.py; run: measure; none")
    parser.add_argument("--llama", metavar="DIR", help="folder of llama-bench, built with CUDA")
    parser.add_argument("--models", default=models_folder(), help="where models are made")
    parser.add_argument("--csv", default="bench/results/gpu.csv")
    table = Table(parser.parse_args())
    try:
        table.measure_peers()
    except (OSError, ValueError) as e:
        print("peers are not measured: %s" % e)
    try:
        table.measure_ceilings()
    except Failed as e:
        sys.exit("no ceilings: %s" % e)
    table.run()


if __name__ == "__main__":
    main()

"""What the peers need on this GPU for the rows of bench/gpu.py, by CUDA events over replayed graphs.

    python3 bench/gpu_peers.py --csv FILE [--only REGEX] [--seconds N] [--wheels DIR]

Peers: cuBLAS, cuDNN and FlexAttention by torch; FLA (PyPI: fla-core, whose ops and modules are all that is
needed; flash-linear-attention has the models) where it is installed or its wheel lies in DIR: it is pure Python,
pip download --no-deps --dest build/wheels fla-core.  What cannot be had says why and is left out."""
import argparse
import csv
import glob
import re
import statistics
import sys
import tempfile
import time
import zipfile

import gpu_rows

ROTATED, MOST_COPIES, CALLS, SAMPLES = 192 << 20, 64, 20, 20


def copies_of(make):
    """Inputs, made until there are more than the cache holds."""
    copies = [make()]
    n_bytes = sum(t.numel() * t.element_size() for t in copies[0] if t is not None)
    while len(copies) * n_bytes < ROTATED and len(copies) < MOST_COPIES:
        copies.append(make())
    return copies


class Peers:
    def __init__(self, options):
        import torch
        self.torch, self.options = torch, options
        self.end = time.monotonic() + options.seconds
        self.csv = open(options.csv, "w", newline="")
        self.keep("row", "peer", "us", "calls", "graph")
        self.random = torch.Generator(device="cuda")
        self.random.manual_seed(1)

    def keep(self, *cells):
        csv.writer(self.csv, lineterminator="\n").writerow(cells)
        self.csv.flush()

    def uniform(self, *shape, low=-1.0, high=1.0, dtype=None):
        t = self.torch.empty(*shape, device="cuda", dtype=dtype or self.torch.bfloat16)
        return t.uniform_(low, high, generator=self.random)

    # --- timing ---

    def events(self, function):
        begin = self.torch.cuda.Event(enable_timing=True)
        end = self.torch.cuda.Event(enable_timing=True)
        function()  # the queue is busy when the clock starts
        begin.record()
        function()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end)

    def graph(self, calls):
        """Replays all calls; None where they cannot be recorded."""
        graph = self.torch.cuda.CUDAGraph()
        try:
            with self.torch.cuda.graph(graph):
                for call in calls:
                    call()
        except Exception as e:
            print("    no graph: %s" % str(e).splitlines()[0])
            self.torch.cuda.synchronize()
            return None
        return graph.replay

    def time(self, call, copies):
        """Median microseconds of a call."""
        for c in copies[:2]:
            call(*c)
        self.torch.cuda.synchronize()
        us = max(self.events(lambda: call(*copies[0])), 1)
        n = max(CALLS, len(copies), min(1024, int(1000 / us)))
        calls = [lambda c=copies[i % len(copies)]: call(*c) for i in range(n)]
        replay = self.graph(calls)
        run = replay or (lambda: [c() for c in calls])
        n_samples = max(3, min(SAMPLES, int(2e6 / (2 * n * us))))
        run()
        samples = [self.events(run) for _ in range(n_samples)]
        return statistics.median(samples) / n, n, int(replay is not None)

    def add(self, name, peer, call, make):
        if not re.search(self.options.only, name):
            return
        if time.monotonic() > self.end:
            print("%s, %s: no time was left" % (name, peer))
            return
        try:
            us, n, graph = self.time(call, copies_of(make))
            print("%-44s %-14s %10.2f us" % (name, peer, us), flush=True)
            self.keep(name, peer, "%.5g" % us, n, graph)
        except Exception as e:
            print("%s, %s: %s" % (name, peer, (str(e) or repr(e)).splitlines()[0]), flush=True)
        self.torch.cuda.empty_cache()

    # --- products ---

    def products(self):
        linear = self.torch.nn.functional.linear
        self.add("bf16 product 8192", "cuBLAS", linear,
                 lambda: (self.uniform(8192, 8192), self.uniform(8192, 8192)))
        for m in (1, 4, 512, 4096):
            for n, k in gpu_rows.MATRICES:
                kind = "vec" if m <= 4 else "mat"
                self.add("mat-%s BF16 %dx%d n %d" % (kind, n, k, m), "cuBLAS", linear,
                         lambda m=m, n=n, k=k: (self.uniform(m, k), self.uniform(n, k)))

    # --- attention ---

    def attention(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        sdpa = self.torch.nn.functional.scaled_dot_product_attention

        def cudnn(q, k, v):
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return sdpa(q, k, v, is_causal=True, enable_gqa=True)
        for (t, h, hkv), *_ in gpu_rows.ATTENTION:
            def make(t=t, h=h, hkv=hkv, dtype=None):
                return tuple(self.uniform(1, n, t, 256, dtype=dtype) for n in (h, hkv, hkv))
            name = "attention T %d H%d/%d" % (t, h, hkv)
            self.add(name, "cuDNN", cudnn, make)
            self.add(name + ", pages", "cuDNN", cudnn,
                     lambda make=make: make(dtype=self.torch.float16))
            if t <= 8192:
                self.flex(name, t, None, make)
            self.flex(name + ", window 1024", t, gpu_rows.WINDOW, make)

    def flex(self, name, t, window, make):
        """Compiling takes longer than measuring: not for rows that nobody asked for."""
        if not re.search(self.options.only, name) or time.monotonic() > self.end:
            return
        try:
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            def mask(b, h, q, k):
                return (q >= k) if window is None else (q >= k) & (q - k < window)
            blocks = create_block_mask(mask, None, None, t, t, device="cuda")
            compiled = self.torch.compile(flex_attention, dynamic=False)
        except Exception as e:
            print("%s, FlexAttention: %s" % (name, str(e).splitlines()[0]))
            return
        self.add(name, "FlexAttention",
                 lambda q, k, v: compiled(q, k, v, block_mask=blocks, enable_gqa=True), make)

    # --- the gated delta net ---

    def delta_inputs(self, n, t, hk, hv, repeat):
        """q k v g beta and a state; keys normalised, as models do."""
        f32 = self.torch.float32
        h = hv if repeat else hk
        k = self.torch.nn.functional.normalize(self.uniform(n, t, h, 128).float(), dim=-1)
        return (self.uniform(n, t, h, 128), k.bfloat16(), self.uniform(n, t, hv, 128),
                self.uniform(n, t, hv, low=-0.1, high=0.0, dtype=f32),
                self.uniform(n, t, hv, low=0.05, high=0.95),
                self.uniform(n, hv, 128, 128, low=-0.1, high=0.1, dtype=f32))

    def grouped(self, call, n, t, hk, hv):
        """Whether it takes fewer key heads; else they are repeated."""
        try:
            call(*self.delta_inputs(n, min(t, 128), hk, hv, False))
            self.torch.cuda.synchronize()
            return False
        except Exception as e:
            print("    key heads are repeated: %s" % (str(e) or repr(e)).splitlines()[0])
            return True

    def delta(self, call, name, peer, n, t, hk, hv):
        if not re.search(self.options.only, name) or time.monotonic() > self.end:
            return
        repeat = self.grouped(call, n, t, hk, hv)
        self.add(name, peer, call, lambda: self.delta_inputs(n, t, hk, hv, repeat))

    def fla(self):
        from fla.ops.gated_delta_rule import (chunk_gated_delta_rule,
                                              fused_recurrent_gated_delta_rule)

        def chunk(q, k, v, g, beta, state):
            return chunk_gated_delta_rule(q, k, v, g, beta, initial_state=state,
                                          output_final_state=True)

        def recurrent(q, k, v, g, beta, state):
            return fused_recurrent_gated_delta_rule(q, k, v, g=g, beta=beta, initial_state=state,
                                                    output_final_state=True)
        for (n, t, hk, hv), _ in gpu_rows.GDN_PREFILL:
            self.delta(chunk, "GDN prefill %dx%d %d/%d" % (n, t, hk, hv), "FLA", n, t, hk, hv)
        for n in gpu_rows.GDN_DECODE:
            self.delta(recurrent, "GDN decode B%d" % n, "FLA", n, 1, 16, 32)

    def convolution(self):
        try:
            from fla.modules.causal_conv1d import causal_conv1d
        except ImportError:  # before 0.6
            from fla.modules.convolution import causal_conv1d
        for t in gpu_rows.CONV:
            self.add("ssm_conv T %d" % t, "FLA",
                     lambda x, w, s: causal_conv1d(x, w, initial_state=s, output_final_state=True,
                                                   activation="silu"),
                     lambda t=t: (self.uniform(1, t, 8192), self.uniform(8192, 4),
                                  self.uniform(1, 8192, 4)))

    def all(self):
        for part in (self.products, self.attention, self.fla, self.convolution):
            try:
                with self.torch.no_grad():
                    part()
            except Exception as e:
                print("%s: %s" % (part.__name__, (str(e) or repr(e)).splitlines()[0]), flush=True)


def open_wheels(folder):
    """Unpacked, since Triton reads the source of kernels."""
    to = tempfile.mkdtemp(prefix="wheels-")
    for wheel in glob.glob(folder + "/*.whl"):
        zipfile.ZipFile(wheel).extractall(to)
    sys.path.insert(0, to)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--csv", required=True)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--wheels", default="build/wheels", help="folder of wheels to try")
    options = parser.parse_args()
    open_wheels(options.wheels)
    try:
        peers = Peers(options)
        print("torch %s, %s" % (peers.torch.__version__, peers.torch.cuda.get_device_name()))
    except Exception as e:
        sys.exit("no peers: %s" % e)
    peers.all()


if __name__ == "__main__":
    main()

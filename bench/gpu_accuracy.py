"""Errors of the gated delta rule against float64: quern's and FLA's, of the same bf16 inputs in torch's memory.

    python3 bench/gpu_accuracy.py --library build/libquern.so [--csv FILE] [--wheels DIR]

It is also how quern's ops serve inside another program: tensors, context and stream are torch's.  Of out and of the
final state: the root of the mean square of what is wrong, and the largest, as parts of those of the right values, both
the mean of --draws calls with other numbers, since the largest of one call is what one of a million numbers came to.
FLA as in gpu_peers.py; without it quern's alone are told."""
import argparse
import csv
import ctypes
import sys

import gpu_peers

F32, BF16, I32, ADDRESS = 0, 2, 6, 16  # qrn_dtype
HEADS_BLOCK = 1
ACTS = {"f32": 0, "bf16": 2}  # qrn_activation_type
CHUNK = 64

# sequences, length, key and value heads, the strongest log decay
CASES = [(1, 8192, 16, 32, .1), (1, 8192, 16, 32, 1), (1, 8192, 16, 32, 20), (8, 1024, 16, 32, .1),
         (1, 8192, 2, 8, .1), (1, 8192, 2, 8, 1), (1, 8192, 2, 8, 1e-3)]


class Tensor(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("n_dims", ctypes.c_int32), ("shape", ctypes.c_int64 * 4),
                ("stride", ctypes.c_int64 * 4), ("data", ctypes.c_void_p), ("n_bytes", ctypes.c_size_t)]


class OpenChunk(ctypes.Structure):
    _fields_ = [(name, Tensor) for name in "q k v g beta seq_begin position state rows out".split()] + [
        ("state_offset", ctypes.c_size_t), ("rows_offset", ctypes.c_size_t), ("scale", ctypes.c_float),
        ("head_map", ctypes.c_int), ("acts", ctypes.c_int), ("settled", ctypes.c_bool)]


class Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in "alloc free user".split()]


class Logger(ctypes.Structure):
    _fields_ = [("write", ctypes.c_void_p), ("user", ctypes.c_void_p), ("level", ctypes.c_int)]


class Options(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("n_threads", ctypes.c_int), ("threads", ctypes.c_void_p),
                ("allocator", Allocator), ("logger", Logger), ("cpu_disable", ctypes.c_char_p),
                ("kernels", ctypes.c_char_p), ("amx", ctypes.c_int), ("cuda_driver", ctypes.c_char_p),
                ("cuda_blas", ctypes.c_char_p), ("cuda_device", ctypes.c_int), ("cuda_context", ctypes.c_void_p),
                ("cuda_stream", ctypes.c_void_p), ("cuda_apart", ctypes.c_bool), ("cuda_alone", ctypes.c_bool)]


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 500)]


class Quern:
    """The op on torch's tensors, in its context and on its stream."""

    def __init__(self, torch, path):
        self.torch, self.library, self.error = torch, ctypes.CDLL(path), Error()
        for name in ("qrn_gdn_state_bytes", "qrn_gdn_rows_bytes"):
            getattr(self.library, name).restype = ctypes.c_size_t
            getattr(self.library, name).argtypes = [ctypes.c_int64] * (3 if "state" in name else 4)
        context = ctypes.c_void_p()
        torch.cuda.current_stream().synchronize()
        ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
        options = Options(name=b"cuda", cuda_context=context,
                          cuda_stream=torch.cuda.current_stream().cuda_stream or None)
        self.device = ctypes.c_void_p()
        self.check(self.library.qrn_device_open(ctypes.byref(options), ctypes.byref(self.device),
                                                ctypes.byref(self.error)))

    def check(self, status):
        if status:
            raise RuntimeError(self.error.text.decode())

    def tensor(self, t, dtype=None):
        types = {self.torch.float32: F32, self.torch.bfloat16: BF16, self.torch.int32: I32}
        return Tensor(types[t.dtype] if dtype is None else dtype, t.dim(), (ctypes.c_int64 * 4)(*t.shape),
                      (ctypes.c_int64 * 4)(*t.stride()), t.data_ptr(), t.numel() * t.element_size())

    def delta(self, q, k, v, g, beta, state, acts):
        """Whole chunks of sequences from position 0: out and final state, as FLA has them."""
        torch, (n, t, hk, d), hv = self.torch, q.shape, v.shape[2]
        newest = (t // CHUNK & 1) + 1  # where the last edge puts its state
        n_state = self.library.qrn_gdn_state_bytes(hv, d, d) // 4
        n_rows = self.library.qrn_gdn_rows_bytes(hk, hv, d, d) // 4
        states = torch.zeros(n, 3, n_state, device="cuda")
        states[:, 0] = state.reshape(n, n_state)
        rows = torch.zeros(n, 2, n_rows, device="cuda")

        def addresses(x):
            each = [[p.data_ptr() for p in s] for s in x]
            return torch.tensor(each, dtype=torch.int64, device="cuda")

        def tokens(x, dtype=torch.float32):
            return x.flatten(0, 1).to(dtype).contiguous()
        dtype = torch.bfloat16 if acts == "bf16" else torch.float32
        inputs = [tokens(q, dtype), tokens(k, dtype), tokens(v, dtype), tokens(g), tokens(beta),
                  torch.arange(n + 1, dtype=torch.int32, device="cuda") * t,
                  torch.zeros(n, dtype=torch.int32, device="cuda")]
        out = torch.empty_like(inputs[2])
        state_at, rows_at = addresses(states), addresses(rows)
        torch.cuda.current_stream().synchronize()
        args = OpenChunk(*[self.tensor(x) for x in inputs], self.tensor(state_at, ADDRESS),
                         self.tensor(rows_at, ADDRESS), self.tensor(out), 0, 0, d ** -.5, HEADS_BLOCK, ACTS[acts])
        self.check(self.library.qrn_gdn_open_chunk(self.device, ctypes.byref(args), ctypes.byref(self.error)))
        return out.reshape(v.shape), states[:, newest].reshape(state.shape)

    def close(self):
        self.library.qrn_device_close(self.device)


def right(torch, q, k, v, g, beta, state):
    """The rule of ops_gdn.h token by token in float64; states are [.., d_k, d_v]."""
    times = v.shape[2] // q.shape[2]
    q, k = (x.double().repeat_interleave(times, 2) for x in (q, k))
    v, decay, beta, S = v.double(), g.double().exp(), beta.double(), state.double()
    out = torch.empty_like(v)
    for t in range(v.shape[1]):
        S = S * decay[:, t, :, None, None]
        u = beta[:, t, :, None] * (v[:, t] - torch.einsum("nhkv,nhk->nhv", S, k[:, t]))
        S = S + k[:, t, :, :, None] * u[:, :, None, :]
        out[:, t] = q.shape[-1] ** -.5 * torch.einsum("nhkv,nhk->nhv", S, q[:, t])
    return out, S


def wrong(x, y):
    """Of x against the right y: parts of its root mean square, and of its largest."""
    e = x.double() - y
    return (e.square().mean().sqrt() / y.square().mean().sqrt()).item(), (e.abs().max() / y.abs().max()).item()


def fla(q, k, v, g, beta, state):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    return chunk_gated_delta_rule(q, k, v, g, beta, initial_state=state, output_final_state=True)


def drawn(torch, n, t, hk, hv, strongest):
    """q, k, v, g, beta and state of n sequences."""
    def uniform(*shape, low=-1.0, high=1.0):
        return torch.empty(*shape, device="cuda").uniform_(low, high)
    return (uniform(n, t, hk, 128).bfloat16(),
            torch.nn.functional.normalize(uniform(n, t, hk, 128), dim=-1).bfloat16(),
            uniform(n, t, hv, 128).bfloat16(), uniform(n, t, hv, low=-strongest, high=0),
            uniform(n, t, hv, low=.05, high=.95).bfloat16(), uniform(n, hv, 128, 128, low=-.1, high=.1))


def mean_wrong(call, inputs, wanted, n):
    """Of n sequences a call: how wrong out and state are, the mean of all calls."""
    each = []
    for i in range(0, wanted[0].shape[0], n):
        out, state = call(*[x[i:i + n] for x in inputs])
        each.append(wrong(out, wanted[0][i:i + n]) + wrong(state, wanted[1][i:i + n]))
    return [sum(x) / len(each) for x in zip(*each)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--csv")
    parser.add_argument("--wheels", default="build/wheels", help="folder of wheels to try")
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    gpu_peers.open_wheels(options.wheels)
    import torch
    torch.manual_seed(1)
    quern = Quern(torch, options.library)
    rows = [("case", "who", "out rms", "out most", "state rms", "state most")]
    for n, t, hk, hv, strongest in CASES:
        inputs = drawn(torch, n * options.draws, t, hk, hv, strongest)
        wanted = right(torch, *inputs)
        name = "%dx%d %d/%d decay %g" % (n, t, hk, hv, strongest)
        for who, call in (("quern", lambda *x: quern.delta(*x, "bf16")), ("FLA", fla),
                          ("quern, f32", lambda *x: quern.delta(*x, "f32"))):
            try:
                errors = mean_wrong(call, inputs, wanted, n)
            except Exception as e:
                print("%s, %s: %s" % (name, who, (str(e) or repr(e)).splitlines()[0]))
                continue
            row = (name, who) + tuple("%.3g" % x for x in errors)
            print("%-34s %-12s out %9s rms %9s most, state %9s rms %9s most" % row, flush=True)
            rows.append(row)
    quern.close()
    if options.csv:
        with open(options.csv, "w", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    sys.exit(main())

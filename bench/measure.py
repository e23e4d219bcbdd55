"""What the programs print, as numbers: quern bench, llama-bench, llama-batched-bench,
test-backend-ops."""
import json
import os
import re
import subprocess
import time


class Programs:
    """Runs quern and llama.cpp; every figure is a rate or a time of one run."""

    def __init__(self, quern, llama, threads):
        self.quern, self.llama, self.threads = quern, llama, threads
        self.env = dict(os.environ, LD_LIBRARY_PATH=llama)

    def output(self, *command):
        done = subprocess.run([str(c) for c in command], env=self.env, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise RuntimeError("%s: %s" % (" ".join(map(str, command)), done.stderr[-500:]))
        return done.stdout

    # --- quern ---

    def model(self, path, n_prompt=0, n_gen=0, depth=0, threads=None, sequences=None):
        """Tokens a second."""
        more = ["--random"] + (["-B", sequences] if sequences else [])
        text = self.output(self.quern, "bench", path, "-p", n_prompt, "-n", n_gen, "-d", depth,
                           "-r", 1, "-t", threads or self.threads, "-o", "json", *more)
        return json.loads(text)[0]["avg_ts"]

    def op(self, op, case, rotate=0, threads=None):
        """{case: {kernel: row}} with the machine's peaks of that run."""
        text = self.output(self.quern, "bench", "--op", op, "--case", case, "--rotate", rotate,
                           "-t", threads or self.threads, "-o", "json")
        return json.loads(text)

    def picked(self, op, case, rotate=0):
        """Rows of the kernels that quern would take, and the machine's peaks in that run."""
        run = self.op(op, case, rotate)
        return [r for r in run["results"] if r["picked"]], run

    def picked_us(self, op, case, rotate=0, only=".*"):
        """Their time, averaged over the cases whose whole name matches only."""
        rows = [r for r in self.picked(op, case, rotate)[0] if re.fullmatch(only, r["case"])]
        return sum(r["ns"] for r in rows) / len(rows) * 1e-3

    # --- llama.cpp ---

    def llama_model(self, path, n_prompt=0, n_gen=0, depth=0, threads=None):
        text = self.output(self.llama + "/llama-bench", "-m", path, "-p", n_prompt, "-n", n_gen,
                           "-d", depth, "-r", 1, "-t", threads or self.threads, "-o", "json",
                           "--no-warmup" if n_prompt > 1024 or depth else "-v")
        return json.loads(text)[0]["avg_ts"]

    def llama_batch(self, path, n_sequences, n_gen):
        text = self.output(self.llama + "/llama-batched-bench", "-m", path, "-c", 4096, "-npp", 16,
                           "-ntg", n_gen, "-npl", n_sequences, "-t", self.threads,
                           "--output-format", "jsonl")
        rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return rows[0]["speed_tg"]

    def llama_op_us(self, op, params):
        text = self.output(self.llama + "/test-backend-ops", "perf", "-o", op, "-b", "CPU", "-p",
                           params)
        found = re.findall(r"- +([0-9.]+) us/run", text)
        if len(found) != 1:
            raise RuntimeError("%s %s matches %d cases of test-backend-ops" %
                               (op, params, len(found)))
        return float(found[0])

    # --- whole processes ---

    def seconds(self, *command):
        begin = time.monotonic()
        self.output(*command)
        return time.monotonic() - begin

    def peak_kib(self, *command):
        """The most memory that a process had, from the kernel's account of it."""
        pid = os.posix_spawn(str(command[0]), [str(c) for c in command], self.env,
                             file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                                           (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)])
        _, status, usage = os.wait4(pid, 0)
        if status != 0:
            raise RuntimeError("%s ended with %d" % (command[0], status))
        return usage.ru_maxrss

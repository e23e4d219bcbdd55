"""Where a step's time goes on a GPU, from the launches that gpu_timeline.c wrote.

    python3 bench/gpu_timeline.py launches.csv [--last argmax_of_parts] [--csv FILE] [--launches N]

A step ends with a launch whose function is called --last; of all steps that have as many launches as most do, but for the first, it
tells for each function: how many launches, and medians of how long one takes (it may have begun early, and waited), how long from the
end of those before to its own end, which adds up to the step, and when it begins after the end of the one before it.  --launches
tells the same of the first N launches, one by one."""
import argparse
import collections
import csv
import statistics


def steps_of(path, last):
    with open(path, newline="") as file:
        rows = [(int(r["begin"]), int(r["end"]), r["function"], int(r["blocks"]), int(r["threads"]), int(r["shared bytes"]))
                for r in csv.DictReader(file)]
    steps, step = [], []
    for row in sorted(rows):
        step.append(row)
        if last in row[2]:
            steps.append(step)
            step = []
    if not steps:
        raise SystemExit("no launch is called %s" % last)
    usual = collections.Counter(map(len, steps)).most_common()
    n = max(usual, key=lambda u: (u[0] * u[1], u[0]))[0]  # steps of most launches in all: others are copies, or prompts
    steps = [s for s in steps if len(s) == n]
    return steps[1:] or steps


def launches_of(steps):
    """(what, taken, added, begins) of each launch of a step, in us, medians over steps."""
    for i in range(len(steps[0])):
        ended = [max(x[1] for x in s[:i]) if i else s[0][0] for s in steps]
        before = [s[i - 1][1] if i else s[0][0] for s in steps]
        yield (steps[0][i][2:],
               statistics.median(s[i][1] - s[i][0] for s in steps) / 1000,
               statistics.median(s[i][1] - e for s, e in zip(steps, ended)) / 1000,
               statistics.median(s[i][0] - b for s, b in zip(steps, before)) / 1000)


COLUMNS = ["function", "blocks", "threads", "shared bytes", "launches", "takes us", "adds us", "begins us", "adds in all us"]


def by_function(launches):
    sums = collections.OrderedDict()
    for what, *times in launches:
        sums.setdefault(what, []).append(times)
    for what, times in sorted(sums.items(), key=lambda s: -sum(t[1] for t in s[1])):
        n = len(times)
        yield [*what, n] + ["%.2f" % (sum(t[k] for t in times) / n) for k in range(3)] + ["%.1f" % sum(t[1] for t in times)]


def table(rows):
    widths = [max(len(str(r[i])) for r in [COLUMNS] + rows) for i in range(len(COLUMNS))]
    for row in [COLUMNS] + rows:
        print("  ".join(str(x).ljust(w) if i == 0 else str(x).rjust(w) for i, (x, w) in enumerate(zip(row, widths))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("launches")
    parser.add_argument("--last", default="argmax_of_parts")
    parser.add_argument("--csv")
    parser.add_argument("--launches", dest="n", type=int, default=0)
    args = parser.parse_args()
    steps = steps_of(args.launches, args.last)
    launches = list(launches_of(steps))
    print("%d steps of %d launches, %.1f us each\n" %
          (len(steps), len(launches), statistics.median(s[-1][1] - s[0][0] for s in steps) / 1000))
    rows = list(by_function(launches))
    table(rows)
    if args.n:
        print()
        table([[*what, 1] + ["%.2f" % t for t in times] + ["%.1f" % times[1]] for what, *times in launches[:args.n]])
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            csv.writer(file).writerows([COLUMNS] + rows)


if __name__ == "__main__":
    main()

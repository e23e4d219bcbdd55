"""The cost of a token against depth: all of it, and what attention and the gated delta rule take, as a
picture (SVG) and a CSV beside it.

    python3 bench/depth.py --quern build/quern --model 0.8B-Q4_K.gguf --out docs/depth.svg"""
import argparse
import csv
import pathlib

from measure import Programs

DEPTHS = [1024, 4096, 8192, 16384]
N_ATTENTION, N_LINEAR = 6, 18  # layers of the 0.8B shape
OPS = [("attention, %d layers" % N_ATTENTION, "attention_paged", "f16 T 1 at %d H 8/2 d 256",
        N_ATTENTION),
       ("gated delta rule, %d layers" % N_LINEAR, "gdn_open_chunk",
        "T 1 at %d Hk 16 Hv 16 d 128", N_LINEAR)]
COLOURS = ["#1f4e79", "#c55a11", "#548235"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 400, 70, 50, 30, 210


def measure(programs, model):
    series = {"a token": [1000 / programs.model(model, n_gen=64, depth=d) for d in DEPTHS]}
    for name, op, case, n_layers in OPS:
        series[name] = [n_layers * programs.picked_us(op, case % (d + 32), only=case % (d + 32))
                        / 1000 for d in DEPTHS]
    return series


def place(depth, ms, most):
    x = LEFT + (WIDTH - LEFT - RIGHT) * depth / DEPTHS[-1]
    return x, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * ms / most


def text(x, y, words, anchor="middle", colour="#222"):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>' % (x, y, anchor, colour,
                                                                            words)


def draw(series):
    most = 1.1 * max(max(v) for v in series.values())
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
           'font-size="13">' % (WIDTH, HEIGHT), '<rect width="100%" height="100%" fill="white"/>']
    step = max(1, round(most / 5))
    for ms in range(0, int(most) + 1, step):
        x, y = place(0, ms, most)
        out.append('<path d="M%.1f %.1fH%d" stroke="#ddd"/>' % (x, y, WIDTH - RIGHT))
        out.append(text(x - 8, y + 4, ms, "end"))
    for depth in [0] + DEPTHS[1:]:
        x, y = place(depth, 0, most)
        out.append(text(x, y + 20, depth))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "tokens of context"))
    out.append(text(LEFT, 18, "ms a token", "start"))
    for (name, values), colour in zip(series.items(), COLOURS):
        points = [place(d, v, most) for d, v in zip(DEPTHS, values)]
        line = " ".join("%.1f,%.1f" % p for p in points)
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' %
                   (line, colour))
        out += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*p, colour) for p in points]
        out.append(text(points[-1][0] + 10, points[-1][1] + 4, name, "start", colour))
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quern", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", required=True)
    parser.add_argument("--csv", required=True)
    o = parser.parse_args()
    series = measure(Programs(o.quern, "", o.threads), o.model)
    pathlib.Path(o.out).write_text(draw(series))
    with open(o.csv, "w", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(["series"] + ["ms at %d" % d for d in DEPTHS])
        writer.writerows([name] + ["%.4g" % v for v in values] for name, values in series.items())


if __name__ == "__main__":
    main()

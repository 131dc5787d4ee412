"""Time of a step against peak memory, one curve for each name, as an SVG in the style of include/reprise/report/svg.hpp.

    picture({"Reprise TrainStep": [{"peak": 900 << 20, "time": 1.2, "label": "60 %"}, …], …}, title)

Lower and further left is better. A curve's points are labelled with their share; what has one point is a point.
"""

import math

colors = {"LibTorch eager": "#6e7781", "PyTorch eager": "#6e7781", "torch.utils.checkpoint": "#e15759", "activation_memory_budget": "#b07aa1",
          "activation_memory_budget, Inductor": "#9c755f", "Reprise checkpoint": "#f28e2b", "Reprise MemoryBudget": "#59a14f",
          "Reprise TrainStep": "#4e79a7"}
style = """<style>.reprise{font:13px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;max-width:100%;height:auto}.reprise .paper{fill:#fff}
.reprise text{fill:#1f2328}.reprise .title{font-size:16px;font-weight:600}.reprise .muted{fill:#59636e}.reprise .small{font-size:11px}
.reprise .grid{stroke:#d8dee4;fill:none}.reprise .halo{stroke:#fff;stroke-width:3;stroke-linejoin:round}
@media(prefers-color-scheme:dark){.reprise .paper{fill:#0d1117}.reprise text{fill:#e6edf3}.reprise .muted{fill:#9198a1}.reprise .grid{stroke:#30363d}
.reprise .halo{stroke:#0d1117}}</style>"""
width, height, left, right, top, bottom = 1200, 460, 92, 330, 62, 56


def ticks(low, high, most):
    """Round numbers from at or below `low` to at or above `high`."""
    rough = (high - low) / most or 1
    power = 10 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [i * step for i in range(first, last + 1)]


def marker(name, x, y):
    color = colors.get(name, "#76b7b2")
    if name == "LibTorch eager":  # where PyTorch's is as well: around it
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{color}" stroke-width="2"/>'
    if name.startswith("Reprise"):
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>'
    return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{color}"/>'


def clear_of(boxes, x, y, text):
    """A place for a label near a point that hits no point and no label; none where there is none."""
    w, h = 6.4 * len(text), 12
    places = [(x - w / 2, y - 9), (x - w / 2, y + 19), (x + 8, y - 8), (x - 8 - w, y + 16), (x + 8, y + 16), (x - 8 - w, y - 8), (x + 8, y + 4),
              (x - 8 - w, y + 4)]
    for px, py in places:
        box = (px, py - h + 2, px + w, py + 2)
        if all(box[2] < b[0] or b[2] < box[0] or box[3] < b[1] or b[3] < box[1] for b in boxes):
            boxes.append(box)
            return px, py
    return None  # the tooltip and the table say it


def picture(curves, title):
    points = [p for curve in curves.values() for p in curve]
    peaks, times = [p["peak"] / 2**20 for p in points], [p["time"] for p in points]
    across = ticks(min(peaks) - (max(peaks) - min(peaks)) * 0.05, max(peaks) + (max(peaks) - min(peaks)) * 0.05, 8)
    up = ticks(0, max(times) * 1.05, 6)

    def place(p):
        return (left + (width - left - right) * (p["peak"] / 2**20 - across[0]) / (across[-1] - across[0]),
                height - bottom - (height - top - bottom) * (p["time"] - up[0]) / (up[-1] - up[0]))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" class="reprise" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
           f'aria-label="{title}">', style, f'<rect class="paper" width="{width}" height="{height}"/>',
           f'<text class="title" x="16" y="24">{title}</text>',
           '<text class="muted" x="16" y="43">lower and further left is better; labels: share of what can be kept; the memory axis does not begin at 0</text>']
    for tick in up:
        y = place({"peak": 0, "time": tick})[1]
        digits = max(0, -math.floor(math.log10(up[1] - up[0]) + 1e-9))
        out.append(f'<path class="grid" d="M{left} {y:.1f}H{width - right}"/><text class="muted" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:.{digits}f} s</text>')
    for tick in across:
        x = place({"peak": tick * 2**20, "time": 0})[0]
        out.append(f'<path class="grid" d="M{x:.1f} {top}V{height - bottom}"/><text class="muted" x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{tick:.0f}</text>')
    out.append(f'<text class="muted" x="{(left + width - right) / 2}" y="{height - 12}" text-anchor="middle">allocator peak, MiB</text>')

    boxes = [(x - 6, y - 6, x + 6, y + 6) for x, y in map(place, points)]
    for k, (name, curve) in enumerate(curves.items()):
        line = sorted(curve, key=lambda p: p["peak"])
        color = colors.get(name, "#76b7b2")
        if len(line) > 1:
            path = " ".join(f"{'M' if i == 0 else 'L'}{place(p)[0]:.1f} {place(p)[1]:.1f}" for i, p in enumerate(line))
            out.append(f'<path d="{path}" stroke="{color}" stroke-width="2" stroke-linejoin="round" fill="none"/>')
        for p in line:
            tip = f'{name} {p["label"]}: {p["peak"] / 2**20:.0f} MiB, {p["time"] * 1000:.0f} ms'
            out.append(f'<g><title>{tip}</title>{marker(name, *place(p))}</g>')
        y = top + 14 + 24 * k
        out.append(f'<path d="M{width - right + 18} {y - 4}h24" stroke="{color}" stroke-width="{2 * (len(line) > 1)}"/>'
                   f'{marker(name, width - right + 30, y - 4)}<text x="{width - right + 52}" y="{y}">{name}</text>')
    for name, curve in curves.items():
        for p in curve:
            at = clear_of(boxes, *place(p), p["label"]) if "%" in p["label"] else None
            if at:
                for kind in ("small halo", "small muted"):
                    out.append(f'<text class="{kind}" x="{at[0]:.1f}" y="{at[1]:.1f}">{p["label"]}</text>')
    return "\n".join(out) + "\n</svg>\n"

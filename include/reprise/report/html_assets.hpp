#pragma once
// The style sheet and the script of every report. Nothing is loaded from elsewhere.
//
// The script reads the page's data (`<script type="application/json" id="data">`, see html.hpp),
// fills the two tables, sorts and searches them, and moves a cursor over the memory curve. It
// changes nothing else.

#include <string_view>

#include <reprise/base/rooms.hpp>

namespace reprise::reporting {

inline constexpr std::string_view report_style = R"css(
:root{--paper:#fff;--ink:#1f2328;--muted:#59636e;--line:#d8dee4;--panel:#f6f8fa;--link:#0969da;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--muted:#9198a1;--line:#30363d;--panel:#161b22;--link:#58a6ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}
main,header,nav{max-width:1280px;margin:0 auto;padding:0 20px}
header{padding-top:24px}
h1{font-size:26px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:20px;margin:36px 0 8px}
p.note{color:var(--muted);margin:0 0 8px}
a{color:var(--link)}
.skip{position:absolute;left:-999px}
.skip:focus{left:8px;top:8px;background:var(--paper);padding:6px}
nav ul{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:12px 0 0;padding:0}
dl.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(180px,1fr));gap:10px;margin:16px 0}
dl.facts div{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
dl.facts dt{color:var(--muted);font-size:13px}
dl.facts dd{margin:0;font-size:19px;font-weight:600;overflow-wrap:anywhere}
dl.facts dd small{display:block;font-size:13px;font-weight:400;color:var(--muted)}
.plot{overflow-x:auto;border:1px solid var(--line);border-radius:8px;margin:12px 0}
.plot svg{display:block;width:100%;min-width:860px;height:auto}
.plot:focus-visible,button:focus-visible,input:focus-visible,.scroll:focus-visible{outline:2px solid var(--link);outline-offset:2px}
#cursor{stroke:var(--ink);stroke-width:1.5;pointer-events:none}
#alive{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:12px 16px;min-height:150px}
#alive h3{font-size:15px;margin:0 0 4px;overflow-wrap:anywhere}
#alive ul{columns:2;column-gap:40px;margin:6px 0 0;padding:0;list-style:none}
#alive li{display:flex;justify-content:space-between;gap:10px;break-inside:avoid}
#alive li span:first-child{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
#alive li span:last-child{white-space:nowrap}
.dot{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px}
.tools{display:flex;flex-wrap:wrap;gap:8px 14px;align-items:center;margin:8px 0}
input[type=search]{font:inherit;color:inherit;background:var(--paper);border:1px solid var(--line);border-radius:6px;padding:5px 10px}
input[type=search]{width:min(340px,100%)}
button{font:inherit;color:inherit;background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:4px 12px;cursor:pointer}
.scroll{overflow:auto;max-height:70vh;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{padding:4px 10px;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
th{position:sticky;top:0;background:var(--panel);padding:0}
th button{border:0;background:none;border-radius:0;font-weight:600;padding:6px 10px;width:100%;text-align:inherit;white-space:nowrap}
th[aria-sort=ascending] button::after{content:' ▲'}
th[aria-sort=descending] button::after{content:' ▼'}
th.text,td.text{text-align:left;max-width:420px;overflow:hidden;text-overflow:ellipsis}
tbody tr:hover{background:var(--panel)}
footer{max-width:1280px;margin:40px auto 24px;padding:0 20px;color:var(--muted);font-size:13px}
@media(max-width:700px){#alive ul{columns:1}h1{font-size:22px}}
@media print{.tools,nav{display:none}.scroll{max-height:none}}
)css";

inline constexpr std::string_view report_script = R"js(
'use strict';
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const bytes = b => {
  let u = 0, x = b;
  while (Math.abs(x) >= 1024 && u < 5) { x /= 1024; ++u; }
  return u === 0 ? b + ' B' : x.toFixed(2) + ' ' + units[u];
};
const time = us => us < 1e3 ? us.toFixed(1) + ' us' : us < 1e6 ? (us / 1e3).toFixed(2) + ' ms' : (us / 1e6).toFixed(3) + ' s';
const show = {
  text: x => x, id: x => x === null ? '' : String(x), bytes, time,
  ratio: x => x === Infinity ? '∞' : x.toPrecision(4), yes: x => x ? 'yes' : 'no',
};
const number = x => x === 'inf' ? Infinity : x;
const element = (name, text) => { const e = document.createElement(name); if (text !== undefined) e.textContent = text; return e; };

// --- Tables: `columns` are {key, kind, values}; rows are indices into them -----------------------
function table(name, first) {
  const {columns, count} = data[name];
  for (const c of columns) c.values = c.values.map(number);
  const body = document.querySelector('#' + name + ' tbody'), head = document.querySelectorAll('#' + name + ' th');
  const search = document.getElementById(name + '-search'), more = document.getElementById(name + '-more');
  const said = document.getElementById(name + '-count');
  const searched = columns.filter(c => c.kind === 'text');
  let rows = [...Array(count).keys()], sorted = null, descending = false, limit = first;
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(w => w);
    const text = i => searched.map(c => c.values[i]).join(' ').toLowerCase();
    const hits = words.length ? rows.filter(i => { const t = text(i); return words.every(w => t.includes(w)); }) : rows;
    const lines = document.createDocumentFragment();
    for (const i of hits.slice(0, limit)) {
      const tr = element('tr');
      for (const c of columns) {
        const td = element('td', show[c.kind](c.values[i]));
        td.title = String(c.values[i] ?? '');
        if (c.kind === 'text') td.className = 'text';
        tr.append(td);
      }
      lines.append(tr);
    }
    body.replaceChildren(lines);
    said.textContent = hits.length <= limit ? hits.length + ' of ' + count : limit + ' of ' + hits.length + ' shown';
    more.hidden = hits.length <= limit;
  };
  const sort = at => {
    const c = columns[at];
    descending = sorted === at ? !descending : c.kind !== 'text' && c.kind !== 'id';
    sorted = at;
    const sign = descending ? -1 : 1;
    rows.sort((a, b) => {
      const x = c.values[a], y = c.values[b];
      if (x === y) return a - b;
      if (x === null) return 1;
      if (y === null) return -1;
      return sign * (x < y ? -1 : 1);
    });
    head.forEach((th, i) => th.setAttribute('aria-sort', i === at ? (descending ? 'descending' : 'ascending') : 'none'));
    draw();
  };
  head.forEach((th, i) => th.querySelector('button').addEventListener('click', () => sort(i)));
  search.addEventListener('input', draw);
  more.addEventListener('click', () => { limit = Infinity; draw(); });
  draw();
}
table('nodes', 200);
table('activations', 200);

// --- The memory curve: a cursor that names what is alive -----------------------------------------
const plot = document.getElementById('memory'), svg = plot.querySelector('svg'), panel = document.getElementById('alive');
const column = key => data.nodes.columns.find(c => c.key === key).values;
const names = column('name'), live = column('live_bytes'), ops = column('op'), phases = column('phase'), ids = column('id');
const n = data.nodes.count, s = data.storages, [left, width, top, height] = data.plot;
const cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
cursor.id = 'cursor';
let at = -1;
const entry = (color, name, size) => {
  const li = element('li'), label = element('span', name), dot = element('i');
  dot.className = 'dot';
  dot.style.background = color;
  label.prepend(dot);
  label.title = name;
  li.append(label, element('span', bytes(size)));
  return li;
};
const point = rank => {
  at = Math.max(0, Math.min(n - 1, rank));
  const x = left + width * (at + 0.5) / n;
  cursor.setAttribute('x1', x); cursor.setAttribute('x2', x);
  cursor.setAttribute('y1', top); cursor.setAttribute('y2', top + height);
  if (!cursor.parentNode) svg.append(cursor);
  const alive = [];
  for (let i = 0; i < s.bytes.length; ++i) if (s.first[i] <= at && at <= s.last[i] && s.bytes[i] > 0) alive.push(i);
  alive.sort((a, b) => s.bytes[b] - s.bytes[a]);
  const list = element('ul');
  for (const i of alive.slice(0, 10)) {
    const role = s.role[i];
    list.append(entry(data.colors[role], s.name[i] + ' (' + data.roles[role] + ')', s.bytes[i]));
  }
  const rest = alive.slice(10).reduce((sum, i) => sum + s.bytes[i], 0);
  if (alive.length > 10) list.append(entry('transparent', 'and ' + (alive.length - 10) + ' more', rest));
  const name = names[at] || 'node ' + ids[at], exact = live[at].toLocaleString('en') + ' bytes';
  const title = element('h3', 'rank ' + at + ': ' + name + ' — ' + bytes(live[at]) + ' (' + exact + ')');
  title.dataset.bytes = live[at];
  title.dataset.rank = at;
  panel.replaceChildren(title, element('p', [ops[at], phases[at], alive.length + ' storages alive'].filter(t => t).join(', ')), list);
  panel.querySelector('p').className = 'note';
};
if (n > 0) {
  plot.addEventListener('mousemove', e => {
    const box = svg.getBoundingClientRect(), x = (e.clientX - box.left) * 1200 / box.width;
    if (x >= left && x <= left + width) point(Math.floor((x - left) / width * n));
  });
  plot.addEventListener('keydown', e => {
    const steps = {ArrowLeft: -1, ArrowRight: 1, PageUp: -Math.ceil(n / 20), PageDown: Math.ceil(n / 20), Home: -Infinity, End: Infinity};
    if (!(e.key in steps)) return;
    e.preventDefault();
    point(e.key === 'Home' ? 0 : e.key === 'End' ? n - 1 : at + steps[e.key]);
  });
  point(data.peak_rank);
}
})();
)js";

}  // namespace reprise::reporting

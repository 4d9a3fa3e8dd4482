"""How the page looks: one sheet, no scripts, nothing from elsewhere; light and dark, narrow and wide."""

import base64
from typing import Final

from gert.kernel.foundation.canonical import sha256_hex

SHEET: Final = """
:root { color-scheme: light dark;
  --ground: #f5f6f8; --card: #ffffff; --text: #16191d; --faint: #515a66; --line: #c9cfd6; --code: #eef0f3;
  --focus: #0b5cad; --good: #13663a; --good-ground: #e3f4e9; --bad: #a3211b; --bad-ground: #fdeae8;
  --warn: #7a4b00; --warn-ground: #fdf1d7; --on-good: #ffffff; --on-bad: #ffffff; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #111417; --card: #1a1e23; --text: #eceff2; --faint: #aab3bd; --line: #3b434c; --code: #23282e;
  --focus: #7db8f5; --good: #7ad69b; --good-ground: #14301f; --bad: #ff9d94; --bad-ground: #3a1a18;
  --warn: #f0c36b; --warn-ground: #33270c; --on-good: #0b1a10; --on-bad: #240706; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); overflow-wrap: anywhere;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
header, main, footer { max-width: 46rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.25rem; color: var(--faint); font-size: .9375rem; }
header p { margin: 0; } header b { color: var(--text); }
footer { padding-bottom: 2.5rem; color: var(--faint); font-size: .875rem; }
h1 { font-size: 1.625rem; line-height: 1.25; margin: .375rem 0 .75rem; }
h2 { font-size: 1.0625rem; line-height: 1.3; margin: 0 0 .75rem; }
p { margin: 0 0 .75rem; }
section, .notice { background: var(--card); border: 1px solid var(--line); border-radius: .625rem;
  padding: 1rem 1.125rem; margin: 0 0 1rem; }
section > :last-child, .notice > :last-child { margin-bottom: 0; }
.notice { border-left-width: .375rem; }
.notice h2 { margin-bottom: .25rem; }
.good { border-color: var(--good); background: var(--good-ground); } .good h2 { color: var(--good); }
.bad { border-color: var(--bad); background: var(--bad-ground); } .bad h2 { color: var(--bad); }
.warn { border-color: var(--warn); background: var(--warn-ground); } .warn h2 { color: var(--warn); }
.tags { display: flex; flex-wrap: wrap; gap: .5rem; list-style: none; margin: 0 0 1rem; padding: 0; }
.tags li { border: 1px solid var(--line); background: var(--card); border-radius: 1rem; padding: .0625rem .75rem; }
.tags .hot { border-color: var(--bad); color: var(--bad); font-weight: 600; }
dl { margin: 0; display: grid; grid-template-columns: minmax(7rem, 12rem) minmax(0, 1fr); gap: .375rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; min-width: 0; }
pre, code { font: .875rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
pre { background: var(--code); border-radius: .375rem; padding: .5rem .75rem; margin: 0; white-space: pre-wrap;
  max-height: 24rem; overflow: auto; }
dd pre { padding: .0625rem .5rem; }
pre ins, pre del { text-decoration: none; } pre ins { color: var(--good); } pre del { color: var(--bad); }
section[aria-labelledby=what] pre { max-height: 9rem; }
.answers { margin: 0; padding: 0; list-style: none; }
.answers li { padding: .5rem 0; border-top: 1px solid var(--line); }
.answers li:first-child { border-top: 0; padding-top: 0; } .answers li:last-child { padding-bottom: 0; }
.answers .why { color: var(--warn); } .faint { color: var(--faint); }
label { display: block; font-weight: 600; margin-bottom: .25rem; }
.field { margin-bottom: 1rem; } .hint { color: var(--faint); margin: 0 0 .375rem; font-size: .9375rem; }
.wrong { color: var(--bad); font-weight: 600; margin: 0 0 .375rem; }
input, textarea { width: 100%; font: inherit; color: inherit; background: var(--ground); padding: .5rem .625rem;
  border: 1px solid var(--faint); border-radius: .375rem; }
textarea { min-height: 2.75rem; resize: vertical; } [aria-invalid=true] { border: 2px solid var(--bad); }
.buttons { display: flex; flex-wrap: wrap; gap: .75rem; }
button { font: inherit; font-weight: 600; min-height: 2.75rem; padding: .5rem 1.5rem; border-radius: .375rem;
  cursor: pointer; flex: 1 1 9rem; }
.approve { background: var(--good); color: var(--on-good); border: 1px solid var(--good); }
.reject { background: transparent; color: var(--bad); border: 2px solid var(--bad); }
button:hover { text-decoration: underline; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
/* Marks can be piled up to cover other lines, and letters that are read from the right can move what follows them. */
h1, dd, section, .notice, .answers li { overflow: hidden; } strong, .why { unicode-bidi: isolate; }
.skip { position: absolute; left: -100rem; }
.skip:focus { position: static; display: inline-block; padding: .5rem 1rem; }
@media (min-width: 60rem) { header, main, footer { max-width: 76rem; }
  main:has(#answer) { display: grid; grid-template-columns: minmax(0, 1fr) 22rem; column-gap: 1.25rem;
    grid-auto-rows: max-content; align-items: start; }
  main:has(#answer) > * { grid-column: 1; } main:has(#answer) > .skip { position: absolute; }
  main:has(#answer) > #answer { grid-column: 2; grid-row: 1 / span 40; position: sticky; top: 1rem; } }
@media (max-width: 34rem) { dl { grid-template-columns: minmax(0, 1fr); gap: 0; } dd { margin-bottom: .625rem; }
  dd:last-child { margin-bottom: 0; } h1 { font-size: 1.25rem; margin-bottom: .5rem; }
  section, .notice { padding: .625rem .75rem; margin-bottom: .625rem; }
  header { padding-top: .5rem; } .tags { margin-bottom: .5rem; } .tags li { font-size: .875rem; padding: 0 .5rem; }
  h2 { margin-bottom: .375rem; } .field { margin-bottom: .5rem; }
  section[aria-labelledby=what] pre { max-height: 6rem; } }
@media (forced-colors: active) { .tags .hot, .notice { border-style: double; } }
@media print { .skip, form { display: none; } pre { max-height: none; } }
"""

_DIGEST: Final = base64.b64encode(bytes.fromhex(sha256_hex(SHEET.encode()))).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""What a browser may do with the page: apply this style sheet, and submit the form to the same site."""

// @ts-check
// Keys and pointer of the timeline, as Perfetto has them: W S zoom, A D pan, / or Ctrl+F search,
// shift-drag selects an area, a click a span.
import {time, tip} from './format.js';
import {kGeometry} from './timeline_view.js';

/**
 * @typedef {{select: (where: import('./timeline_view.js').Where|null) => void, area: () => void,
 *   search: () => void, next: (forward: boolean) => void, focus: () => void}} Acts
 */

/** @param {import('./timeline_view.js').TimelineView} view @param {Acts} acts */
export function listen(view, acts) {
  const {canvas} = view;
  /** @type {{x: number, y: number, from: number, scroll: number, moved: boolean, area: boolean}|null} */
  let drag = null;
  const placeOf = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('wheel', (event) => {
    // Without focus the page scrolls: who reads on must not be caught.
    if (!event.ctrlKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const amount = event.deltaMode === 1 ? event.deltaY * 30 : event.deltaY;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = ((view.to - view.from) * (event.deltaX || amount)) / 1500;
      view.show(view.from + by, view.to + by);
    } else if (event.altKey) {
      view.scrollTo(view.scroll + amount);
    } else {
      view.zoom(Math.exp(amount / 500), placeOf(event)[0]);
    }
  }, {passive: false});
  canvas.addEventListener('pointerdown', (event) => {
    const [x, y] = placeOf(event);
    drag = {x, y, from: view.from, scroll: view.scroll, moved: false, area: event.shiftKey};
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({preventScroll: true});
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = placeOf(event);
    if (!drag) return hover(event, x, y);
    drag.moved = drag.moved || Math.abs(x - drag.x) > 3 || Math.abs(y - drag.y) > 3;
    if (!drag.moved) return undefined;
    if (drag.area) {
      view.area = areaOf(drag, x, y);
      view.draw();
      return undefined;
    }
    const by = ((drag.x - x) / (view.width - view.label)) * (view.to - view.from);
    canvas.classList.add('dragging');
    view.show(drag.from + by, drag.from + by + view.to - view.from);
    view.scrollTo(drag.scroll + drag.y - y);
    return undefined;
  });
  canvas.addEventListener('pointerup', (event) => {
    const [x, y] = placeOf(event);
    if (drag && !drag.moved) clicked(x, y);
    else if (drag && drag.area) acts.area();
    drag = null;
    canvas.classList.remove('dragging');
  });
  canvas.addEventListener('pointerleave', () => tip.hide());
  canvas.addEventListener('dblclick', (event) => {
    const [x, y] = placeOf(event);
    const hit = view.hit(x, y);
    if (hit) zoomTo(hit);
  });
  canvas.addEventListener('keydown', pressed);

  /** @param {{x: number, y: number}} begin @param {number} x @param {number} y */
  function areaOf(begin, x, y) {
    const [left, right] = [Math.min(begin.x, x), Math.max(begin.x, x)];
    const shift = view.scroll - kGeometry.axis;
    return {from: Math.max(0, view.ns(Math.max(view.label, left))), to: view.ns(Math.max(view.label, right)),
            top: Math.min(begin.y, y) + shift, bottom: Math.max(begin.y, y) + shift};
  }

  /** @param {number} x @param {number} y */
  function clicked(x, y) {
    const row = view.rowAt(y);
    if (row && row.head) return view.fold(row.rank.rank);
    view.area = null;
    acts.select(view.hit(x, y));
    return undefined;
  }

  /** @param {MouseEvent} event @param {number} x @param {number} y */
  function hover(event, x, y) {
    const found = view.hit(x, y);
    canvas.style.cursor = view.rowAt(y)?.head ? 'pointer' : '';
    if (!found) return tip.hide();
    const {rank, place} = found;
    const {name, block} = rank.classes[rank.cls[place]];
    const text = rank.strings[name] || rank.strings[block];
    tip.show(event, `${text.length > 160 ? text.slice(0, 160) + '…' : text}\n${time(rank.end[place] - rank.start[place], 4)}`);
    return undefined;
  }

  /** @param {import('./timeline_view.js').Where} where */
  function zoomTo({rank, place}) {
    const span = Math.max(100, rank.end[place] - rank.start[place]);
    view.show(rank.start[place] - span * 0.5, rank.end[place] + span * 0.5);
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    const by = (view.to - view.from) / 8;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const command = event.ctrlKey || event.metaKey;
    if (command && key === 'f') acts.search();
    else if (command || event.altKey) return;
    else if (key === 'w' || key === '+' || key === '=') view.zoom(0.7);
    else if (key === 's' || key === '-') view.zoom(1 / 0.7);
    else if (key === 'a' || key === 'ArrowLeft') view.show(view.from - by, view.to - by);
    else if (key === 'd' || key === 'ArrowRight') view.show(view.from + by, view.to + by);
    else if (key === 'ArrowUp') view.scrollTo(view.scroll - 60);
    else if (key === 'ArrowDown') view.scrollTo(view.scroll + 60);
    else if (key === '0') view.show(0, view.end);
    else if (key === 'f' && view.selected) zoomTo(view.selected);
    else if (key === '/') acts.search();
    else if (key === 'n' || (key === 'Enter' && view.found)) acts.next(!event.shiftKey);
    else if (key === 'Escape') {
      view.area = view.mark = null;
      acts.select(null);
    } else return;
    event.preventDefault();
  }
}

// The console's script. Every page works without it; with it a page updates
// itself, points in time are in the reader's zone, and keys move about.
"use strict";
(function () {
  const main = document.getElementById("main");

  // Points in time, in the reader's own zone.
  const forms = {
    full: { dateStyle: "medium", timeStyle: "medium" },
    time: { timeStyle: "medium" },
    short: { hour: "2-digit", minute: "2-digit", weekday: "short" },
  };
  function localTimes(root) {
    for (const el of root.querySelectorAll("time[datetime]")) {
      const at = new Date(el.dateTime);
      if (isNaN(at)) continue;
      el.textContent = new Intl.DateTimeFormat("en-GB", forms[el.dataset.form] || forms.full).format(at);
    }
  }

  // morph makes one element equal to another and touches only what differs, so
  // that focus, selection, open details and scrolling stay.
  function morph(old, next) {
    if (old.isEqualNode(next)) return;
    if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) {
      old.replaceWith(next);
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = next.nodeValue;
      return;
    }
    const typing = old === document.activeElement && (old.nodeName === "INPUT" || old.nodeName === "TEXTAREA");
    for (const a of [...old.attributes]) {
      if (!next.hasAttribute(a.name) && !(a.name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(a.name);
    }
    for (const a of next.attributes) {
      if (a.name === "open" && old.nodeName === "DETAILS") continue;
      if (old.getAttribute(a.name) !== a.value) old.setAttribute(a.name, a.value);
    }
    if (typing) return;
    morphChildren(old, next);
  }
  const keyOf = (n) => n.nodeType === Node.ELEMENT_NODE && (n.dataset.key || n.id) || null;
  function morphChildren(old, next) {
    const keyed = new Map();
    for (const n of old.childNodes) if (keyOf(n)) keyed.set(keyOf(n), n);
    const known = keyed.size > 0;
    let at = old.firstChild;
    for (const n of [...next.childNodes]) {
      const key = keyOf(n);
      let same = key ? keyed.get(key) : null;
      if (!same && !key && at && !keyOf(at)) same = at;
      if (!same) {
        if (known && n.nodeName === "TR") n.classList.add("new");
        old.insertBefore(n, at);
        continue;
      }
      if (same === at) at = at.nextSibling;
      else old.insertBefore(same, at);
      keyed.delete(key);
      if (same.dataset && same.dataset.src && same.dataset.loaded) continue; // what was loaded later stays
      morph(same, n);
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  }

  // A page reads itself again when the ledger has grown.
  let reading = false, again = false, shown = location.href;
  async function readAgain(url) {
    url = url || location.href;
    if (reading) { again = true; return; }
    reading = true;
    try {
      const answer = await fetch(url, { headers: { "X-Console": "live" }, credentials: "same-origin" });
      if (answer.status === 401) { location.href = "/sign-in?next=" + encodeURIComponent(location.pathname + location.search); return; }
      if (!answer.ok && answer.status >= 500) return;
      const doc = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = doc.getElementById("main");
      if (!next) return;
      localTimes(doc);
      morph(main, next);
      const foot = document.querySelector("footer"), nextFoot = doc.querySelector("footer");
      if (foot && nextFoot) morph(foot, nextFoot);
      for (const part of ["#moment", "header nav"]) {
        const old = document.querySelector(part), fresh = doc.querySelector(part);
        if (old && fresh) morph(old, fresh);
      }
      ready();
      choose(chosen, false);
      loadLater();
      shown = url;
    } catch (e) {
      state("off", "reconnecting");
    } finally {
      reading = false;
      if (again) { again = false; readAgain(); }
    }
  }

  const light = document.getElementById("live");
  function state(kind, text) {
    if (!light) return;
    if (light.className !== "live " + kind) light.className = "live " + kind;
    if (light.textContent !== text) light.textContent = text;
  }

  const live = document.body.dataset.live;
  let source = null, seen = null, stale = false;
  function listen() {
    if (!live || source) return;
    source = new EventSource(live);
    source.onmessage = (e) => {
      state("on", "live");
      if (seen !== null && e.data !== seen) document.hidden ? stale = true : readAgain();
      seen = e.data;
    };
    source.onerror = () => {
      state("off", "reconnecting");
      if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(listen, 5000); }
    };
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && stale) { stale = false; readAgain(); }
  });
  // Elapsed times go on where nothing happens.
  setInterval(() => { if (live && !document.hidden) readAgain(); }, 15000);

  // Parts that take longer than the page are loaded after it.
  async function loadLater() {
    for (const el of document.querySelectorAll("[data-src]:not([data-loaded])")) {
      el.dataset.loaded = "1";
      try {
        const answer = await fetch(el.dataset.chosen || el.dataset.src, { headers: { "X-Console": "live" }, credentials: "same-origin" });
        if (!answer.ok) throw new Error(answer.status);
        const doc = new DOMParser().parseFromString("<body>" + await answer.text(), "text/html");
        localTimes(doc);
        el.replaceChildren(...doc.body.childNodes);
        followOutput();
        const every = parseInt(el.dataset.every, 10);
        if (every) setTimeout(() => { if (!document.hidden) delete el.dataset.loaded; loadLater(); }, every * 1000);
      } catch (e) {
        el.textContent = "This part cannot be shown now; it is tried again.";
        setTimeout(() => { delete el.dataset.loaded; loadLater(); }, 10000);
      }
    }
  }

  // What a job writes is added to the end as it comes, as text. Who has scrolled up
  // is left where he is.
  const maxShown = 256 * 1024;
  let tail = null;
  function followOutput() {
    const log = document.querySelector("pre[data-tail]");
    if (!log || log === tail) return;
    tail = log;
    log.scrollTop = log.scrollHeight;
    const state = log.parentNode.querySelector("[data-tail-state]");
    const source = new EventSource(log.dataset.tail);
    source.onmessage = (e) => {
      if (!log.isConnected) { source.close(); return; }
      const said = JSON.parse(e.data), low = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
      if (said.again) log.textContent = "";
      if (said.text) {
        log.append(said.text);
        if (log.textContent.length > maxShown) log.textContent = log.textContent.slice(-maxShown / 2);
        if (low) log.scrollTop = log.scrollHeight;
      }
      if (state) state.textContent = said.wait || (said.over ? "The job has ended." : "It goes on as the job writes.");
      if (said.over) source.close();
    };
    source.onerror = () => {
      if (!log.isConnected) source.close();
      else if (state) state.textContent = "reconnecting";
    };
  }
  document.addEventListener("click", (e) => {
    const link = e.target.closest && e.target.closest("#output a[data-output]");
    if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
    e.preventDefault();
    const part = document.getElementById("output");
    part.dataset.chosen = link.getAttribute("href");
    delete part.dataset.loaded;
    loadLater();
  });

  // A page of the past: the slider and the player go to other moments without
  // loading the page again. The address follows, so that it can be sent as a link.
  const momentForm = (seconds) => new Date(seconds * 1000).toISOString().replace(/\.\d+Z$/, "Z");
  function goTo(seconds) {
    const query = new URLSearchParams(location.search);
    query.set("at", momentForm(seconds));
    history.replaceState(null, "", location.pathname + "?" + query);
    return readAgain();
  }
  function ready() {
    const play = document.getElementById("play"), go = document.querySelector(".slide .go");
    if (play) play.hidden = false;
    if (go) go.hidden = true;
  }
  let slide = 0;
  document.addEventListener("input", (e) => {
    if (e.target.id !== "pos") return;
    stop();
    const seconds = Number(e.target.value), shown = document.querySelector("#moment .when time");
    if (shown) { shown.dateTime = momentForm(seconds); localTimes(shown.parentNode); }
    clearTimeout(slide);
    slide = setTimeout(() => goTo(seconds), 120);
  });
  // A second of watching is a minute of the cluster, however long a page takes.
  const speed = 60;
  let playing = 0;
  function stop() {
    clearInterval(playing);
    playing = 0;
    mark();
  }
  function mark() {
    const play = document.getElementById("play");
    if (!play) return;
    play.textContent = playing ? "Stop" : "Play 60×";
    play.setAttribute("aria-pressed", playing ? "true" : "false");
  }
  document.addEventListener("click", (e) => {
    if (e.target.id !== "play") return;
    if (playing) { stop(); return; }
    const began = Date.now(), from = Number(document.getElementById("moment").dataset.at);
    playing = setInterval(() => {
      if (document.hidden || reading) return;
      const seconds = Math.floor(from + speed * (Date.now() - began) / 1000);
      if (seconds * 1000 >= Date.now()) {
        stop();
        location.href = document.querySelector("[data-present]").href;
        return;
      }
      const slider = document.getElementById("pos");
      if (slider) slider.value = seconds;
      goTo(seconds).then(mark);
    }, 1000);
    mark();
  });
  // What is typed is in the zone of the reader, and keeps what he has filtered.
  document.addEventListener("submit", (e) => {
    const form = e.target;
    if (!form.matches("form[data-moment]")) return;
    e.preventDefault();
    const query = new URLSearchParams(location.search);
    for (const key of ["did", "span"]) query.delete(key);
    query.set("at", form.elements.at.value);
    if (!/^#|Z$/.test(form.elements.at.value)) query.set("zone", Intl.DateTimeFormat().resolvedOptions().timeZone);
    location.href = location.pathname + "?" + query;
  });

  // Filters act as one types.
  let wait = 0;
  document.addEventListener("input", (e) => {
    const form = e.target.closest && e.target.closest("form[data-typed]");
    if (!form) return;
    clearTimeout(wait);
    wait = setTimeout(() => {
      const query = new URLSearchParams(new FormData(form));
      for (const [k, v] of [...query]) if (!v) query.delete(k);
      history.replaceState(null, "", form.getAttribute("action") + (String(query) ? "?" + query : ""));
      readAgain();
    }, 180);
  });

  // Completion of a question: views, their columns and the words of SQL.
  const question = document.getElementById("question"), words = document.getElementById("words");
  if (question && words) {
    const known = [...new Set([...document.querySelectorAll("[data-word]")].map((el) => el.dataset.word))].sort().concat(
      ["SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "DESC", "AND", "BETWEEN", "count()", "sum(", "avg(", "max(", "min(", "quantile(0.5)(",
        "toDate(", "toStartOfHour(", "toStartOfMonth(", "now()", "INTERVAL", "formatReadableSize("]);
    let at = 0;
    const before = () => (question.value.slice(0, question.selectionStart).match(/[A-Za-z_][A-Za-z0-9_]*$/) || [""])[0];
    const take = (word) => {
      const start = question.selectionStart - before().length;
      question.setRangeText(word, start, question.selectionStart, "end");
      offer();
      question.focus();
    };
    const offer = () => {
      const begun = before().toLowerCase();
      const fit = begun ? known.filter((w) => w.toLowerCase().startsWith(begun) && w.toLowerCase() !== begun).slice(0, 8) : [];
      at = Math.min(at, Math.max(fit.length - 1, 0));
      words.replaceChildren(...fit.map((w, i) => {
        const li = document.createElement("li");
        li.id = "word-" + i;
        li.setAttribute("role", "option");
        li.setAttribute("aria-selected", i === at ? "true" : "false");
        li.textContent = w;
        li.addEventListener("mousedown", (e) => { e.preventDefault(); take(w); });
        return li;
      }));
      words.hidden = fit.length === 0;
      if (fit.length) question.setAttribute("aria-activedescendant", "word-" + at);
      else question.removeAttribute("aria-activedescendant");
    };
    question.addEventListener("input", () => { at = 0; offer(); });
    question.addEventListener("blur", () => { words.hidden = true; });
    question.addEventListener("keydown", (e) => {
      if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) { e.preventDefault(); question.form.requestSubmit(); return; }
      if (words.hidden) return;
      if (e.key === "Tab" && !e.shiftKey) { e.preventDefault(); take(words.children[at].textContent); }
      else if (e.key === "ArrowDown" || e.key === "ArrowUp") {
        e.preventDefault();
        at = (at + (e.key === "ArrowDown" ? 1 : words.children.length - 1)) % words.children.length;
        offer();
      } else if (e.key === "Escape") { e.stopPropagation(); words.hidden = true; }
    });
  }

  // Keys: / to filter, j and k to choose a row, Enter to open it, g and a letter
  // to go to a page.
  let chosen = null, going = 0;
  function choose(key, scroll) {
    chosen = key;
    for (const row of document.querySelectorAll("tr.chosen")) row.classList.remove("chosen");
    const row = key && document.querySelector('tbody tr[data-key="' + CSS.escape(key) + '"]');
    if (!row) return;
    row.classList.add("chosen");
    if (scroll) row.scrollIntoView({ block: "nearest" });
  }
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.nodeName);
    if (typing) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    if (e.key === "/") {
      const field = document.querySelector("form[data-typed] input[type=search]");
      if (field) { field.focus(); field.select(); e.preventDefault(); }
      return;
    }
    if (Date.now() < going) {
      going = 0;
      const page = document.querySelector('header nav a[data-go="' + CSS.escape(e.key) + '"]');
      if (page) { page.click(); e.preventDefault(); return; }
    }
    if (e.key === "g") { going = Date.now() + 1000; return; }
    const rows = [...document.querySelectorAll("tbody tr[data-key]")];
    if (!rows.length) return;
    const at = rows.findIndex((r) => r.dataset.key === chosen);
    if (e.key === "j") choose(rows[Math.min(at + 1, rows.length - 1)].dataset.key, true);
    else if (e.key === "k") choose(rows[Math.max(at - 1, 0)].dataset.key, true);
    else if (e.key === "Enter" && at >= 0 && e.target === document.body) { const a = rows[at].querySelector("a"); if (a) a.click(); }
  });

  // A link may carry a token behind #, where no server sees it: muster console
  // prints such a link.
  const signIn = document.getElementById("sign-in");
  if (signIn && location.hash.length > 20) {
    signIn.elements.token.value = location.hash.slice(1);
    history.replaceState(null, "", location.pathname + location.search);
    signIn.submit();
  }

  localTimes(document);
  ready();
  followOutput();
  loadLater();
  listen();
})();

"""The page in a real browser, network off: every chart drawn, nothing on the console, tables sort, phones fit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from parsim.report.build import page as whole_page
from parsim.report.build import write_report
from parsim.sweep.results import Results, read_results
from parsim.sweep.run import run_sweep
from parsim.sweep.spec import parse_spec

pytestmark = pytest.mark.browser
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a small sweep with every study."""
    folder = tmp_path_factory.mktemp("page")
    spec = parse_spec(
        {
            "name": "page",
            "trace": {"bundled": True, "requests": 400},
            "set": {"max_num_seqs": 16, "num_gpu_blocks": 3000, "max_model_len": 8192},
            "policies": ["fcfs", "pars", "oracle"],
            "seeds": [0, 1],
            "trials": 6,
        },
        "page",
    )
    results = run_sweep(spec, folder, Console(quiet=True), jobs=1)
    return write_report(folder, results)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    if not CHROMIUM or not DRIVER:
        pytest.skip("Chromium and chromedriver are not installed")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})  # type: ignore[arg-type]
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def opened(browser, page: Path, width: int) -> None:  # type: ignore[no-untyped-def]
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 1200, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get(page.as_uri())
    WebDriverWait(browser, 60).until(
        lambda b: b.execute_script("return document.documentElement.dataset.ready")
    )


def test_every_chart_is_drawn_and_the_console_is_silent(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    opened(browser, page, 1280)
    specified = browser.execute_script("return document.querySelectorAll('script[data-chart]').length")
    marks = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map(c => c.dataset.drawn === 'yes' ?"
        " c.querySelectorAll('svg .mark-line path, svg .mark-rect path, svg .mark-symbol path,"
        " svg .mark-rule line, svg .mark-text text').length : 0)"
    )
    assert specified >= 15
    assert len(marks) == specified
    assert min(marks) >= 3, marks
    assert browser.get_log("browser") == []


def test_nothing_is_asked_from_the_network(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    opened(browser, page, 1280)
    asked = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in asked if not name.startswith(("data:", "file:"))] == []


def test_a_phone_needs_no_sideways_scrolling(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    opened(browser, page, 390)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.chart svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert max(widths) <= 390 and min(widths) >= 250


def test_a_click_on_a_heading_sorts(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    opened(browser, page, 1280)
    script = """
      const table = [...document.querySelectorAll('table')].find(t => t.caption.textContent.startsWith('The best'));
      const heads = [...table.querySelectorAll('th')];
      const i = heads.findIndex(h => h.textContent.includes('max_num_seqs'));
      const read = () => [...table.tBodies[0].rows].map(r => Number(r.cells[i].dataset.sort));
      heads[i].querySelector('button').click(); const up = read();
      heads[i].querySelector('button').click(); const down = read();
      return [up, down, heads[i].getAttribute('aria-sort')];
    """
    up, down, state = browser.execute_script(script)
    assert up == sorted(up) and down == sorted(up, reverse=True)
    assert state == "descending"


def test_a_click_on_a_legend_hides_a_policy_and_shows_it_again(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    opened(browser, page, 1280)
    script = """
      const done = arguments[arguments.length - 1];
      const figure = document.querySelector('figure:has(.legend button)');
      const dots = () => figure.querySelectorAll('svg .mark-symbol path').length;
      const wait = () => new Promise(resolve => setTimeout(resolve, 300));
      const button = figure.querySelector('.legend button');
      (async () => {
        const before = dots();
        button.click(); await wait(); const hidden = dots(); const pressed = button.getAttribute('aria-pressed');
        button.click(); await wait(); done([before, hidden, pressed, dots()]);
      })();
    """
    before, hidden, pressed, after = browser.execute_async_script(script)
    assert before == after > hidden > 0
    assert pressed == "false"


@pytest.mark.parametrize("width", [1280, 390])
def test_axes_read_as_people_say_them_and_their_labels_do_not_collide(
    browser, page: Path, width: int
) -> None:  # type: ignore[no-untyped-def]
    opened(browser, page, width)
    texts, collisions = browser.execute_script(
        """
        const texts = [], collisions = [];
        for (const axis of document.querySelectorAll('.chart .role-axis-label')) {
          const labels = [...axis.querySelectorAll('text')].filter(t => t.textContent && t.style.opacity !== '0'
            && t.getAttribute('opacity') !== '0');
          texts.push(...labels.map(t => t.textContent));
          if (labels.some(t => /rotate\\(-?[1-9]/.test(t.getAttribute('transform') || ''))) continue;
          const boxes = labels.map(t => t.getBoundingClientRect());
          boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b, j) => {
            if (a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2)
              collisions.push([labels[i].textContent, labels[i + 1 + j].textContent]);
          }));
        }
        return [texts, collisions];
        """
    )
    assert collisions == []
    assert len(texts) > 50
    assert [text for text in texts if text.endswith("m")] == []


def test_the_page_says_which_version_wrote_it_and_when(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    opened(browser, page, 1280)
    footer = browser.execute_script("return document.querySelector('footer').textContent")
    written = datetime.fromtimestamp(page.stat().st_mtime).date()
    assert f"parsim {version('parsim')} on {written}" in footer


def test_dark_mode_keeps_text_readable(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    opened(browser, page, 1280)
    ink, paper, axis = browser.execute_script(
        "const s = e => getComputedStyle(e); const t = document.querySelector('.chart .role-axis-label text');"
        "return [s(document.body).color, s(document.body).backgroundColor, s(t).fill]"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert contrast(ink, paper) > 7
    assert contrast(axis, paper) > 7


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two CSS colours (WCAG 2)."""

    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[4:-1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def test_the_page_of_a_thousand_points_stays_small(page: Path) -> None:
    results = read_results(page.parent)
    once = results.select("main", load=results.facts["loads"][0])
    loads = [0.01 * step for step in range(1, 171)]
    many = pl.concat(
        [once.with_columns(load=pl.lit(load), row=pl.col("row") + 10_000 * i) for i, load in enumerate(loads)]
    )
    assert many.height == 1020
    groups = results.groups.filter(pl.col("row").is_in(once["row"].implode()))
    focus = results.facts["focus_load"]
    big = Results(
        results=pl.concat([results.results, many.filter(pl.col("load") != focus)]),
        groups=pl.concat(
            [results.groups, *(groups.with_columns(pl.col("row") + 10_000 * i) for i in range(len(loads)))]
        ),
        requests=results.requests,
        series=results.series,
        facts={**results.facts, "loads": sorted({*results.facts["loads"], *loads})},
    )
    assert len(whole_page(big)) < 10e6

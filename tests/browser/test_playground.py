"""web/playground/ as a person meets it: load a model, ask, watch the answer come, stop it.

Elements are found by what they say or by their role, as far as there is one.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenTab

pytestmark = pytest.mark.browser

HELLO = "Hello! I am a tiny mixture of experts model made for tests."
PHONE = {"width": 360, "height": 640}


def load_demo(page: Page, name: str) -> None:
    page.get_by_role("button", name=f"Load {name}").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()


def send(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    box.fill(text)
    box.press("Enter")


@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 720}, PHONE])
def test_a_conversation(open_tab: OpenTab, viewport: dict[str, int]) -> None:
    page = open_tab(path="/", viewport=viewport).page
    load_demo(page, "tiny.gguf")
    expect(page.get_by_text("artifact mt")).to_be_visible()
    page.get_by_label("Temperature").evaluate("(input) => { input.value = 0; }")
    send(page, "Hello!")
    log = page.get_by_role("log")
    expect(log).to_contain_text(HELLO)
    expect(log).to_contain_text("tokens/s")
    send(page, "List three colors.")
    expect(log).to_contain_text("blue")
    expect(page.locator(".turn.assistant").last).to_have_text("1. red\n2. green\n3. blue")
    # The second prompt begins with the first one and its answer.
    expect(page.locator(".figures").last).to_contain_text(re.compile(r"\d+ of \d+ tokens cached \(live\)"))
    assert page.evaluate("() => document.documentElement.scrollWidth") <= viewport["width"]


def test_the_answer_grows_and_stops(open_tab: OpenTab) -> None:
    page = open_tab(path="/", demo="abc.gguf").page
    load_demo(page, "abc.gguf")
    page.get_by_label("Longest answer").evaluate("(input) => { input.value = 4000; }")
    page.evaluate(
        """() => {
          globalThis.lengths = new Set();
          const log = document.querySelector("[role=log]");
          new MutationObserver(() => lengths.add(log.textContent.length)).observe(log, {
            childList: true, subtree: true, characterData: true });
        }"""
    )
    send(page, "Go")
    answer = page.locator(".turn.assistant")
    expect(answer).to_contain_text("abcabc")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("log")).to_contain_text("stopped")
    assert page.evaluate("() => lengths.size") > 3
    assert len(answer.inner_text()) < 4000
    send(page, "Once more")
    expect(page.locator(".turn.assistant")).to_have_count(2)
    expect(page.locator(".turn.assistant").last).to_contain_text("abc")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_phone_s_width_is_enough_before_and_after_loading(open_tab: OpenTab) -> None:
    page = open_tab(path="/", viewport=PHONE, has_touch=True).page
    width = "() => document.documentElement.scrollWidth"
    assert page.evaluate(width) <= PHONE["width"]
    load_demo(page, "tiny.gguf")
    page.get_by_label("Longest answer").evaluate("(input) => { input.value = 8; }")
    send(page, "x" * 500)
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert page.evaluate(width) <= PHONE["width"]


def test_a_page_without_isolation_shows_why(open_tab: OpenTab) -> None:
    page = open_tab(path="/", isolation=False).page
    load_demo(page, "tiny.gguf")
    expect(page.get_by_text("artifact st")).to_be_visible()
    page.get_by_text("Why", exact=True).click()
    expect(page.get_by_text("not cross-origin isolated")).to_be_visible()


def test_the_keyboard_is_enough(open_tab: OpenTab) -> None:
    page = open_tab(path="/").page
    button = page.get_by_role("button", name="Load tiny.gguf")
    expect(button).to_be_visible()
    for _ in range(5):
        page.keyboard.press("Tab")
        if button.evaluate("(element) => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.keyboard.type("Hello!")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.assistant")).not_to_be_empty()


def test_the_chooser_makes_room_and_opens_again_by_keyboard(open_tab: OpenTab) -> None:
    page = open_tab(path="/", viewport=PHONE).page
    load_demo(page, "tiny.gguf")
    title = page.get_by_role("heading", name="Choose another model")
    button = page.get_by_role("button", name="Load tiny.gguf")
    expect(button).to_be_hidden()
    card = page.locator("details", has=title)
    assert card.evaluate("(element) => element.offsetHeight") < PHONE["height"] / 10

    for _ in range(10):
        page.keyboard.press("Shift+Tab")
        if title.evaluate("(element) => element.parentElement === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(button).to_be_visible()
    page.keyboard.press("Tab")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(button).to_be_hidden()
    expect(page.get_by_text("artifact mt")).to_be_visible()


def test_a_file_of_the_user(open_tab: OpenTab, model_files: Mapping[str, Path]) -> None:
    page = open_tab(path="/").page
    page.locator("input[type=file]").set_input_files(model_files["abc.gguf"])
    expect(page.get_by_text("Parrot")).to_be_visible()


@pytest.mark.parametrize("name", ["text.gguf", "truncated.gguf"])
def test_a_broken_file_is_explained(open_tab: OpenTab, model_files: Mapping[str, Path], name: str) -> None:
    page = open_tab(path="/").page
    page.locator("input[type=file]").set_input_files(model_files[name])
    expect(page.get_by_role("alert")).to_have_text(re.compile(r"\((model_invalid|model_truncated)\)$"))
    load_demo(page, "tiny.gguf")
    expect(page.get_by_role("alert")).to_be_hidden()

"""web/playground/models.html as a person meets it: what is kept, adding more, and letting it go.

Elements are found by what they say or by their role. What the store does is tested in test_model_store.py.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette

from tests.browser.downloads import MIB, NOISE, Published
from tests.browser.profiles import Origin, origin, profile
from tests.fault_scenarios import Answer
from tests.fault_server import FaultServer

pytestmark = pytest.mark.browser

PATH = "/abc.gguf"
MODELS = "/playground/models.html"
PHONE = {"width": 360, "height": 640}


def open_models(site: Origin) -> Page:
    tab = site.open(MODELS)
    tab.allow(NOISE)
    expect(tab.page.get_by_text("None yet.")).to_be_visible()
    return tab.page


def add(page: Page, address: str) -> None:
    page.get_by_label("Address of a .gguf file").fill(address)
    page.get_by_role("button", name="Download", exact=True).click()


def cards(page: Page) -> Any:
    return page.get_by_role("list", name="Models").get_by_role("listitem")


def tasks(page: Page) -> Any:
    return page.get_by_role("list", name="Under way").get_by_role("listitem")


def test_a_model_comes_by_its_address(site: Origin, faults: FaultServer, small_model: Published) -> None:
    """With its facts; a question sends nothing anywhere, so it can be asked at once."""
    served = faults.serve(PATH, small_model.path)
    page = open_models(site)
    add(page, f"{served.url}?token=secret")
    card = cards(page)
    expect(card).to_have_count(1)
    expect(tasks(page)).to_have_count(0)
    expect(card).to_contain_text("15.7 MB")
    expect(card).to_contain_text("apache-2.0")
    expect(card).to_contain_text(served.url)
    expect(page.locator("body")).not_to_contain_text("secret")
    expect(page.get_by_role("meter", name="Room")).to_be_visible()
    expect(page.get_by_text("Models take 15.7 MB.")).to_be_visible()
    card.get_by_role("link", name="Chat").click()
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    expect(page.get_by_text("Parrot")).to_be_visible()


def test_a_download_is_paused_and_goes_on(site: Origin, faults: FaultServer, roomy_model: Published) -> None:
    served = faults.serve(PATH, roomy_model.path, rate=3 * MIB)
    page = open_models(site)
    add(page, served.url)
    task = tasks(page)
    expect(task).to_contain_text(re.compile(r"\d+\.\d MB of 62\.9 MB · \d+\.\d MB/s · .* left"))
    task.get_by_role("button", name="Pause").press("Enter")
    expect(task).to_contain_text("Paused")
    expect(task.get_by_role("button", name="Resume")).to_be_focused()
    faults.settle()
    before = faults.bytes_sent()
    assert before < roomy_model.size
    served.rate = None
    page.keyboard.press("Enter")
    expect(cards(page)).to_have_count(1)
    assert faults.bytes_sent() < roomy_model.size * 1.1


def test_a_refusal_is_explained_and_can_be_tried_again(
    site: Origin, faults: FaultServer, small_model: Published
) -> None:
    served = faults.serve(PATH, small_model.path, faults=[Answer(status=404, times=2)])
    page = open_models(site)
    add(page, served.url)
    expect(tasks(page)).to_contain_text(re.compile(r"Error: .*404.*\(download_failed\)"))
    served.faults.clear()
    tasks(page).get_by_role("button", name="Resume").click()
    expect(cards(page)).to_have_count(1)


def test_a_token(site: Origin, faults: FaultServer, small_model: Published) -> None:
    served = faults.serve(PATH, small_model.path, token="hr-s3cret")
    page = open_models(site)
    page.get_by_text("Access token").click()
    page.get_by_label("Sent with each request").fill("hr-s3cret")
    add(page, served.url)
    expect(cards(page)).to_have_count(1)
    assert page.get_by_label("Sent with each request").input_value() == ""


def test_no_room_names_what_could_go(
    site: Origin, faults: FaultServer, roomy_model: Published, small_model: Published
) -> None:
    page = open_models(site)
    add(page, faults.serve("/small.gguf", small_model.path).url)
    expect(cards(page)).to_have_count(1)
    site.limit(site.tabs[0], 70 * MIB)
    add(page, faults.serve(PATH, roomy_model.path).url)
    expect(tasks(page)).to_contain_text(re.compile(r"small.*\(15\.7 MB\)"))
    tasks(page).get_by_role("button", name="Make room").click()
    expect(cards(page)).to_have_count(1)
    expect(cards(page)).to_contain_text("62.9 MB")


def test_a_file_of_the_user_is_kept_checked_and_taken_out(site: Origin, small_model: Published) -> None:
    page = open_models(site)
    page.get_by_label("Add .gguf files…").set_input_files(small_model.path)
    card = cards(page)
    expect(card).to_contain_text("a file of yours")
    pin = card.get_by_role("button", name="Pin")
    pin.click()
    expect(pin).to_have_attribute("aria-pressed", "true")
    card.get_by_role("button", name="Verify").click()
    expect(card).to_contain_text("Every byte is as it should be.")
    with page.expect_download() as saved:
        card.get_by_role("button", name="Export").click()
    assert Published.of(Path(saved.value.path())).sha256 == small_model.sha256
    assert saved.value.suggested_filename.endswith(".gguf")


def test_a_model_is_deleted_by_keyboard_after_a_question(site: Origin, small_model: Published) -> None:
    page = open_models(site)
    page.get_by_label("Add .gguf files…").set_input_files(small_model.path)
    delete = cards(page).get_by_role("button", name="Delete")
    delete.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("15.7 MB")
    expect(dialog.get_by_role("button", name="Keep")).to_be_focused()
    page.keyboard.press("Escape")
    expect(cards(page)).to_have_count(1)
    expect(delete).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("None yet.")).to_be_visible()
    expect(page.get_by_role("heading", name="Models")).to_be_focused()
    assert site.stored(site.tabs[0]) == {}


def test_a_phone_s_width_is_enough(site: Origin, faults: FaultServer, small_model: Published) -> None:
    page = open_models(site)
    page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    add(page, faults.serve(f"/{'long' * 20}.gguf", small_model.path).url)
    expect(cards(page)).to_have_count(1)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_browser_that_keeps_nothing_is_said_to(
    browser: Browser,
    chromium: Path,
    app: Starlette,
    faults: FaultServer,
    small_model: Published,
    tmp_path: Path,
) -> None:
    """Case D7: and the page works all the same."""
    blocked = {"profile": {"default_content_setting_values": {"cookies": 2}}}
    with (
        profile(browser, chromium, tmp_path, preferences=blocked) as context,
        origin(context, app) as site,
    ):
        page = open_models(site)
        expect(page.get_by_text("Models cannot be kept in this browser")).to_be_visible()
        add(page, faults.serve(PATH, small_model.path).url)
        expect(cards(page)).to_have_count(1)

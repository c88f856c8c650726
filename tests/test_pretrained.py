"""Models by name: whether a hub answers is asked before anything is loaded."""

import socket
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from attsvm.errors import ProblemError
from attsvm.pretrained import loading
from attsvm.pretrained.inputs import read_texts

constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """Sets the address of the hub, whose cache is empty."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(loading, "SECONDS_FOR_HUB", 0.2)
    return lambda port: monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")


def test_a_hub_that_does_not_answer_is_one_line(hub):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub(silent.getsockname()[1])
        with pytest.raises(
            ProblemError, match=r"^some/model: no such folder, and http\S+ does not answer; give a folder"
        ):
            loading.check_models(["some/model"], pictures=False)


@pytest.mark.parametrize("status", [200, 404])
def test_a_hub_that_answers_is_asked_for_the_model_later(hub, status):
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.handle_request, daemon=True).start()
        hub(server.server_port)
        loading.check_models(["some/model"], pictures=False)


def test_a_model_that_is_there_needs_no_hub(hub, tmp_path):
    hub(9)
    (tmp_path / "models--some--model").mkdir()
    loading.check_models(["some/model", str(tmp_path)], pictures=False)
    (tmp_path / "config.json").touch()
    with pytest.raises(ProblemError, match=r"expected a model for pictures, but it has no image processor"):
        loading.check_models([str(tmp_path)], pictures=True)


def test_lines_of_texts_end_at_line_feeds_only(tmp_path):
    (tmp_path / "texts.txt").write_bytes("one\u2028two\x0bthree\x85four\r\n\nfive\x1csix".encode())
    assert read_texts(tmp_path / "texts.txt") == ["one\u2028two\x0bthree\x85four", "five\x1csix"]

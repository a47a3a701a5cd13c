"""Who may ask the viewer: its own page, in the browser that opened its address."""

from __future__ import annotations

from typing import Any

import pytest

from tests.view.asking import Answer, Header, ask
from tfrtool.view.guard import MAX_BODY, Guard

TOKEN = "xFb3-_tok"
HOST = "127.0.0.1:4321"


async def _let_in(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"secret"})


def guard(*hosts: str) -> Guard:
    """Guard an application that lets all in."""
    return Guard(_let_in, hosts=hosts or ("127.0.0.1", "localhost", "::1"), token=TOKEN)


def asked(
    *headers: Header, host: str | None = HOST, one: Guard | None = None, **words: Any
) -> Answer:
    """Ask with the right cookie, and with more headers."""
    one = one or guard()
    given = [("cookie", f"{one.cookie}={TOKEN}"), *headers]
    path = words.pop("path", "/api/state")
    return ask(one, path, headers=given if host is None else [("host", host), *given], **words)


@pytest.mark.parametrize(
    "host",
    [HOST, "localhost:4321", "LOCALHOST:4321", "[::1]:4321", "127.0.0.1", "localhost:9000"],
)
def test_the_names_of_this_machine_are_answered_at_any_port_that_leads_here(host: str) -> None:
    """A tunnel may have another port, as that of ``ssh -L``."""
    assert asked(host=host).status == 200
    assert asked(("origin", f"http://{host}"), host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [None, "", "evil.example:4321", "127.0.0.1.evil.example", "localhost.:4321", "127.1:4321",
     "localhost:4321@evil.example", "evil.example/127.0.0.1:4321", "127.0.0.1:4321 ", "2130706433",
     "::1", "[::1", "127.0.0.1:4321:1", "127.0.0.1:", "192.168.1.5:4321", "0.0.0.0:4321",
     "localh\xf6st:4321"],
)  # fmt: skip
def test_other_names_are_refused_as_after_dns_rebinding(host: str | None) -> None:
    """A name of theirs that leads here is still theirs."""
    refused = asked(host=host)
    assert (refused.status, refused.body) == (403, b"unknown host\n")


def test_where_all_may_come_any_address_in_numbers_is_a_name_but_no_other() -> None:
    """Addresses in numbers can't be made to lead elsewhere."""
    for listened in ("0.0.0.0", "::"):
        one = guard(listened, "worker")
        for host in ("192.168.1.5:4321", "[fe80::1]:4321", "worker:4321"):
            assert asked(host=host, one=one).status == 200
        assert asked(host="evil.example:4321", one=one).status == 403


@pytest.mark.parametrize(
    "origin",
    ["null", "", "https://127.0.0.1:4321", "http://127.0.0.1:4322", "http://evil.example",
     "127.0.0.1:4321", "http://localhost:4321", "http://127.0.0.1:4321.evil.example"],
)  # fmt: skip
def test_another_origin_is_refused(origin: str) -> None:
    """Another port is another origin."""
    assert asked(("origin", origin)).status == 403


def test_other_sites_get_nothing_even_with_the_cookie() -> None:
    """Browsers say where a request comes from."""
    for site in ("cross-site", "same-site", "nonsense"):
        assert asked(("sec-fetch-site", site)).status == 403
    for site in ("same-origin", "none"):
        assert asked(("sec-fetch-site", site)).status == 200


@pytest.mark.parametrize("name", ["host", "origin", "sec-fetch-site", "content-length"])
def test_a_header_that_is_there_twice_is_refused(name: str) -> None:
    """Servers and proxies may each take another one."""
    value = {"host": HOST, "origin": f"http://{HOST}", "content-length": "0"}.get(name, "none")
    twice = [(name, value)] * (1 if name == "host" else 2)
    assert asked(*twice).status == 400


@pytest.mark.parametrize(
    "query",
    ["", "token=", "token=wrong", "token=%C3%A4", "token=\xe4", f"token=wrong&token={TOKEN}",
     f"Token={TOKEN}", f"token={TOKEN}%00", "token=%ff", f"x={TOKEN}", f"token={TOKEN}+"],
)  # fmt: skip
def test_only_the_right_token_lets_in(query: str) -> None:
    """Tokens that are odd are wrong, and no errors."""
    refused = ask(guard(), "/", query, headers=[("host", HOST)])
    assert refused.status == 403
    assert b"secret" not in refused.body


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_have() -> None:
    """It leaves the address at once."""
    one, other = guard(), Guard(_let_in, hosts=("127.0.0.1",), token="another")
    answer = ask(one, "/", f"token={TOKEN}", headers=[("host", HOST)])
    assert answer.status == 303
    held = dict(answer.headers)
    assert held["location"] == "/"
    assert held["set-cookie"] == f"{one.cookie}={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    # Cookies don't know ports: two viewers have two names, and each has the same after a restart.
    assert one.cookie != other.cookie
    assert one.cookie == guard().cookie
    lasting = Guard(_let_in, hosts=("127.0.0.1",), token=TOKEN, cookie_seconds=60)
    answer = ask(lasting, "/", f"token={TOKEN}", headers=[("host", HOST)])
    assert dict(answer.headers)["set-cookie"] == f"{held['set-cookie']}; Max-Age=60"
    # The token is taken at the page's own address only.
    assert ask(one, "/api/state", f"token={TOKEN}", headers=[("host", HOST)]).status == 403


def test_people_get_a_page_with_the_address_to_try_again() -> None:
    """It leads to the viewer alone, without a token; what is public needs none, but a good host."""
    one = Guard(
        _let_in, hosts=("127.0.0.1",), token=TOKEN, locked_page="<{}>".format, public=("/p",)
    )
    html = ("accept", "text/html,*/*")
    for path, query, site, shown in (
        ("/record/0/1", "a=<b>&token=wrong", "none", b"</record/0/1?a=%3Cb%3E>\n"),
        ("/record/0/1", "", "cross-site", b"</record/0/1>\n"),
        ("//evil.example/x", "", "none", b"</>\n"),
        ("/\\evil.example", "", "none", b"</%5Cevil.example>\n"),
        ('/"><script>', "", "none", b"</%22%3E%3Cscript%3E>\n"),
    ):
        headers = [("host", HOST), ("sec-fetch-site", site), html]
        answer = ask(one, path, query, headers=headers)
        assert (answer.status, answer.body) == (403, shown)
        assert dict(answer.headers)["content-type"].startswith("text/html")
    assert ask(one, "/p", headers=[("host", HOST)]).body == b"secret"
    assert ask(one, "/p", headers=[("host", "evil.example")]).status == 403
    refused = ask(one, "/x", headers=[("host", HOST), html], method="POST")
    assert (refused.status, refused.body[:4]) == (403, b"open")


def test_what_else_this_machine_has_set_as_cookies_does_not_matter() -> None:
    """Each is read for itself."""
    one = guard()
    right = f"{one.cookie}={TOKEN}"
    for cookies in (f'a={{"b": 1}}; {right}', f"[odd]; ; =; {right}", f"{one.cookie}=x; {right}"):
        assert ask(one, "/x", headers=[("host", HOST), ("cookie", cookies)]).status == 200
    wrong = [f"{one.cookie}{rest}" for rest in ("", f'="{TOKEN}"', f"={TOKEN}x")]
    for cookies in (*wrong, f"x{right}", f"a={right}", right.upper(), "\xe4\xff=\xe4"):
        assert ask(one, "/x", headers=[("host", HOST), ("cookie", cookies)]).status == 403


def test_methods_and_bodies_that_the_page_does_not_send_are_refused() -> None:
    """Each is refused before anything is read."""
    for method in ("OPTIONS", "TRACE", "PUT", "DELETE", "CONNECT", "PATCH", "X" * 1000):
        assert asked(method=method).status == 405
    for length in ("-1", "1e3", "\xb2", "9" * 5000, "0x10", "1, 1"):
        assert asked(("content-length", length), method="POST").status == 411
    assert asked(("transfer-encoding", "chunked"), method="POST").status == 411
    assert asked(("content-length", str(MAX_BODY + 1)), method="POST").status == 413
    assert asked(("content-length", str(MAX_BODY)), method="POST").status == 200


def test_there_are_no_web_sockets() -> None:
    """They would not be asked where they come from."""
    assert asked(kind="websocket").status is None

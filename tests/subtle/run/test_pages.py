"""Pages filled in by hand."""

import re

from subtle.run.pages import csp_hash, render_page


def test_the_hash_of_the_standards_example_is_the_standards():
    # the example of Content Security Policy Level 2, section 4.2.5
    assert csp_hash("alert('Hello, world.');") == "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"


def test_a_form_of_the_user_study_runs_its_own_script_only_and_follows_the_browsers_colors():
    item = {
        "item_id": "item-001",
        "clip": "data:video/mp4;base64,",
        "coarse_caption": "</script><b>",
        "fine_caption": "&",
    }
    page = render_page("user_study.html", form="</script><script>alert(1)", number=1, items=[item])
    assert page.count("<script>") == page.count("</script>") == 1
    policy = re.search('http-equiv="Content-Security-Policy" content="(.*?)"', page)[1]
    assert f"script-src {csp_hash(re.search('<script>(.*)</script>', page, re.DOTALL)[1])};" in policy
    assert f"style-src {csp_hash(re.search('<style>(.*)</style>', page, re.DOTALL)[1])};" in policy
    assert policy.startswith("default-src 'none'; media-src data:;")
    assert "prefers-color-scheme: dark" in page

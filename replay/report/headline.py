"""What a report says first: one sentence for each comparison or subject, in plain words. Pure."""

from replay.report.facts import Facts

_NAMES = (
    ("ttft_ms", "its first token", "time to first token"),
    ("e2e_ms", "the end of its answers", "time to the last token"),
    ("itl_ms", "each further token", "time per output token"),
)


def sentences(facts: Facts) -> list[str]:
    """The verdict on what matters, or what a single subject shows; failures before all."""
    said = [_failed(subject) for subject in facts["subjects"] if subject["failed"]]
    compared = facts["comparison"]
    if compared is not None:
        a, b = (subject["id"] for subject in facts["subjects"] if subject["kind"] == "run")
        said += [f"No comparison: {compared['refused']}."] if compared["refused"] else _verdicts(compared, a, b)
    else:
        said += [subject["reuse"]["means"][0] for subject in facts["subjects"]]
    return said


def _failed(subject: Facts) -> str:
    reasons = ", ".join(f"{number} × {reason}" for reason, number in subject["failures"].items())
    return f"{subject['failed']} of {subject['exchanges']} exchanges of {subject['id']} failed: {reasons}."


def _verdicts(compared: Facts, a: str, b: str) -> list[str]:
    verdicts = {verdict["metric"]: verdict for verdict in compared["verdicts"]}
    found = next(((verdicts[name], what, plain) for name, what, plain in _NAMES if verdicts.get(name, {}).get("ci")), None)
    if found is None:
        return [f"{a} and {b} share no latency that could be measured in both."]
    return [_verdict(*found, a=a, b=b)]


def _verdict(verdict: Facts, what: str, plain: str, *, a: str, b: str) -> str:
    n = f"{verdict['n_turns']} paired turns of {verdict['n_sessions']} sessions"
    low, high = verdict["ci"]
    ratio = f"{verdict['ratio']:.2f} times (95 % interval {low:.2f} to {high:.2f}), {n}"
    weak = " Few sessions: the interval is weak." if verdict["weak"] else ""
    if verdict["verdict"] == "worse":
        return f"{b} takes longer than {a} to {what}: {ratio}.{weak}"
    if verdict["verdict"] == "better":
        return f"{b} takes less time than {a} to {what}: {ratio}.{weak}"
    if verdict["verdict"] == "no difference":
        return f"No difference between {a} and {b} in {plain}: {ratio}.{weak}"
    return f"Inconclusive: {plain} of {b} against {a} is {ratio}.{weak}"

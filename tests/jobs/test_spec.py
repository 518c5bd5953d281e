from typing import Any

import pytest
from django.core.exceptions import ValidationError

from jobs import spec
from jobs.hostpolicy import HostPolicy


def refusal(check: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        check(value)
    assert caught.value.code is not None
    return caught.value.code


# --- Image ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "busybox:1.36",
        "library/busybox",
        "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime",
        "ghcr.io/org/team/tool:v1",
        "localhost/tool",
        "localhost:5000/tool:latest",
        "registry:5000/a__b/c-d.e",
        "Registry.Example.org/tool",
        "busybox@sha256:" + "a" * 64,
        "busybox:1@sha256:" + "0" * 64,
        "a" * 255,
    ],
)
def test_an_image_reference_of_docker_is_taken(image: str) -> None:
    spec.check_image(image)


@pytest.mark.parametrize(
    ("image", "what"),
    [
        ("", "nothing"),
        ("--privileged", "an option"),
        ("-it", "an option"),
        ("a b", "a space"),
        (" busybox", "a space in front"),
        ("busybox\n", "a newline after it"),
        ("../x", "a way up"),
        ("a/../b", "a way up inside"),
        ("a..b", "two dots"),
        ("/etc/passwd", "an absolute path"),
        ("http://host/x", "a scheme"),
        ("Busybox", "upper case"),
        ("User/busybox", "an upper-case path"),
        ("busybox:", "an empty tag"),
        ("busybox:" + "t" * 129, "a long tag"),
        ("busybox:-t", "a tag like an option"),
        ("busybox@sha256:abc", "a short digest"),
        ("busybox@md5:" + "a" * 32, "another digest"),
        ("a//b", "an empty part"),
        ("a/", "an empty last part"),
        ("host:123456/x", "a port of six digits"),
        ("busybox\x00", "a NUL"),
        ("busyb\u00f6x", "a letter that is not ASCII"),
        ("busybox:\u0661", "a digit that is not ASCII"),
        ("$(id)", "a substitution"),
    ],
)
def test_no_image_reference(image: str, what: str) -> None:
    assert refusal(spec.check_image, image) == "bad_image", what


def test_an_image_of_256_characters_is_too_long() -> None:
    assert refusal(spec.check_image, "a" * 256) == "max_length"


def test_the_image_pattern_does_not_backtrack_for_ever() -> None:
    for part in ("a-", "a_", "a.", "a/", "a:", "-"):
        refusal(spec.check_image, (part * 255)[:254] + "!")


# --- Command -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        None,
        "echo $HOME; ls | wc",
        ["echo", "$(id)", "", "--flag"],
        ["x" * 131_071],
        ["x"] * 1000,
        "x" * 32 * 1024,
        ["\u00e9cho"],
    ],
)
def test_a_command_is_null_or_a_string_or_a_list_of_strings(command: Any) -> None:
    spec.check_command(command)


@pytest.mark.parametrize(
    ("command", "code", "what"),
    [
        ([], "empty_command", "an empty list"),
        ([""], "empty_command", "no program"),
        ("", "empty_command", "an empty string"),
        (" \n", "empty_command", "a blank string"),
        (5, "bad_command", "a number"),
        (True, "bad_command", "a boolean"),
        ({"cmd": "x"}, "bad_command", "an object"),
        ([1], "bad_command", "a list with a number"),
        ([["x"]], "bad_command", "a list in a list"),
        ([None], "bad_command", "a null in a list"),
        ("a\x00b", "bad_text", "a NUL in a string"),
        (["a\x00b"], "bad_text", "a NUL in an item"),
        (["a", "\ud800"], "bad_text", "half of a surrogate pair"),
        (["x" * 131_072], "command_too_long", "an item longer than Linux takes"),
        (["\u00e9" * 65_536], "command_too_long", "an item too long in bytes only"),
        (["x"] * 1001, "command_too_long", "1,001 items"),
        ("x" * (32 * 1024 + 1), "command_too_long", "a string over 32 KiB"),
    ],
)
def test_no_command(command: Any, code: str, what: str) -> None:
    assert refusal(spec.check_command, command) == code, what


# --- Environment ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"A": "", "_b1": "x=y\nz", "PATH": "/bin", "LD_PRELOAD": "/m/x.so"},
        {"NVIDIA_DISABLE_REQUIRE": "1", "NVIDIA_TF32_OVERRIDE": "0"},
        {"CUDA_LAUNCH_BLOCKING": "1", "MY_GPUJOBS_X": "1"},
        {f"K{n}": "v" for n in range(256)},
        {"BIG": "x" * 32 * 1024},
    ],
)
def test_env_is_an_object_of_names_and_texts(env: Any) -> None:
    spec.check_env(env)


@pytest.mark.parametrize(
    ("env", "code", "what"),
    [
        ([], "bad_env", "a list"),
        (None, "bad_env", "null"),
        ("A=1", "bad_env", "a string"),
        ({"A": 1}, "bad_env", "a number as value"),
        ({"A": None}, "bad_env", "null as value"),
        ({"A": ["x"]}, "bad_env", "a list as value"),
        ({"": "x"}, "bad_env_name", "no name"),
        ({"=x": "y"}, "bad_env_name", "a name with ="),
        ({"1A": "x"}, "bad_env_name", "a digit first"),
        ({"A B": "x"}, "bad_env_name", "a space"),
        ({"A\n": "x"}, "bad_env_name", "a newline"),
        ({"A-B": "x"}, "bad_env_name", "a dash"),
        ({"\u00c4": "x"}, "bad_env_name", "a letter that is not ASCII"),
        ({"A": "x\x00"}, "bad_text", "a NUL in a value"),
        ({"A": "\udfff"}, "bad_text", "half of a surrogate pair in a value"),
        ({f"K{n}": "v" for n in range(257)}, "env_too_large", "257 variables"),
        ({"A": "x" * (32 * 1024 + 1)}, "env_too_large", "a value over 32 KiB"),
        ({f"K{n}": "x" * 32_000 for n in range(5)}, "env_too_large", "128 KiB in all"),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, "env_reserved", "other GPUs"),
        ({"NVIDIA_DRIVER_CAPABILITIES": "all"}, "env_reserved", "driver capabilities"),
        ({"NVIDIA_DISABLE_REQUIRE_X": "1"}, "env_reserved", "nearly an allowed one"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, "env_reserved", "CUDA's list"),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "env_reserved", "CUDA's order"),
        ({"DOCKER_RESOURCE_GPU": "x"}, "env_reserved", "another variable of the hook"),
        ({"GPUJOBS_JOB_ID": "x"}, "env_reserved", "one of ours"),
    ],
)
def test_no_env(env: Any, code: str, what: str) -> None:
    assert refusal(spec.check_env, env) == code, what


# --- Volumes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("volume", "cleaned"),
    [
        ("/srv/data/a:/data", ("/srv/data/a", "/data", "ro")),
        ("/srv/data:/data/x:rw", ("/srv/data", "/data/x", "rw")),
        ("/home/al ice/:/mnt/é/", ("/home/al ice", "/mnt/é", "ro")),
        ({"source": "/home", "target": "/models"}, ("/home", "/models", "ro")),
        (
            {"source": "/home", "target": "/outputs", "mode": "rw"},
            ("/home", "/outputs", "rw"),
        ),
    ],
)
def test_a_volume_is_written_in_either_way(volume: Any, cleaned: Any) -> None:
    (result,) = spec.clean_volumes([volume])
    assert (result["source"], result["target"], result["mode"]) == cleaned


@pytest.mark.parametrize(
    ("volume", "code", "what"),
    [
        (5, "bad_volume", "a number"),
        (None, "bad_volume", "null"),
        ("", "bad_volume", "an empty string"),
        ("/home", "bad_volume", "no target"),
        ("/home:/data:z", "bad_volume", "another mode"),
        ("/home:/data:ro,z", "bad_volume", "more options"),
        ("/home:/data:ro:x", "bad_volume", "a fourth part"),
        ({"source": "/home"}, "bad_volume", "an object without target"),
        (
            {"source": "/home", "target": "/data", "type": "bind"},
            "bad_volume",
            "one more key",
        ),
        ({"source": "/home", "target": "/data", "mode": None}, "bad_volume", "no mode"),
        ({"source": "/home", "target": "/data", "mode": ["ro"]}, "bad_volume", "list"),
        ({"source": 5, "target": "/data"}, "bad_path", "a number as path"),
        ("Named:/data", "bad_path", "a name in capitals"),
        ("-x:/data", "bad_path", "a name that is an option"),
        ("x" * 64 + ":/data", "bad_path", "a name of 64"),
        (":/data", "bad_path", "no name"),
        ("./x:/data", "bad_path", "a relative source"),
        ("~/x:/data", "bad_path", "a home"),
        ("/home/../etc:/data", "bad_path", "a way up"),
        ("/home/./x:/data", "bad_path", "a dot"),
        ("/home//x:/data", "bad_path", "an empty part"),
        ("/home/x\n:/data", "bad_path", "a newline"),
        ("/home/x\x00:/data", "bad_path", "a NUL"),
        ("/home/\ud800:/data", "bad_path", "half of a surrogate pair"),
        ({"source": "/home/a:b", "target": "/data"}, "bad_path", "a colon"),
        ("/home/" + "x" * 4096 + ":/data", "bad_path", "a path of 4,102 characters"),
        ("/:/data", "bad_path", "the root"),
        ("/home:/etc", "bad_target", "a target in the image"),
        ("/home:/database", "bad_target", "a target that a root begins"),
        ("/home:/artifacts", "bad_target", "the place for results"),
    ],
)
def test_no_volume(volume: Any, code: str, what: str) -> None:
    assert refusal(spec.clean_volumes, [volume]) == code, what


@pytest.mark.parametrize(
    ("targets", "what"),
    [
        (["/data", "/data"], "one target twice"),
        (["/data", "/data/x"], "one inside another"),
        (["/data/x/y", "/mnt", "/data/x"], "one around another"),
        (["/data", "/data/"], "one target with a slash"),
    ],
)
def test_targets_do_not_hide_one_another(targets: list[str], what: str) -> None:
    volumes = [f"/home:{target}" for target in targets]
    assert refusal(spec.clean_volumes, volumes) == "nested_target", what


def test_neighbouring_targets_are_fine() -> None:
    assert len(spec.clean_volumes(["/home:/data/a", "/home:/data/ab"])) == 2


def test_twenty_volumes_are_the_most() -> None:
    volumes = [f"/home:/data/{n}" for n in range(21)]
    assert len(spec.clean_volumes(volumes[:20])) == 20
    assert refusal(spec.clean_volumes, volumes) == "too_many_volumes"


@pytest.mark.parametrize("value", [None, {}, "/home:/data", 5])
def test_volumes_are_a_list(value: Any) -> None:
    assert refusal(spec.clean_volumes, value) == "bad_volume"


# --- Name, and fields that do not go together ----------------------------------------


@pytest.mark.parametrize(
    "name", ["a", "é" * 100, "train: 7/8 \U0001f469\u200d\U0001f52c"]
)
def test_a_name_is_one_line(name: str) -> None:
    spec.check_name(name)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("x" * 101, "max_length"),
        ("a\nb", "control_character"),
        ("a\x1b[31m", "control_character"),
        ("a\u2028b", "control_character"),
        ("a\u202eb", "control_character"),
        ("a\x00", "bad_text"),
        ("a\udc00", "bad_text"),
    ],
)
def test_no_name(name: str, code: str) -> None:
    assert refusal(spec.check_name, name) == code


@pytest.mark.parametrize(
    "data",
    [
        {"image": "busybox"},
        {"model_name": "summarise", "params": {"text": "x"}},
        {"model_name": "summarise", "env": {}, "volumes": [], "command": None},
        {"image": "busybox", "params": None, "model_name": ""},
        {"image": "busybox", "share": True, "min_vram_mb": 100},
        {"image": "busybox", "gpu_count": 0},
    ],
)
def test_fields_that_go_together(data: dict[str, Any]) -> None:
    spec.check(data, HostPolicy())


@pytest.mark.parametrize(
    ("data", "field", "code"),
    [
        ({}, "image", "required"),
        ({"image": "", "model_name": ""}, "image", "required"),
        ({"image": "a", "model_name": "b"}, "model_name", "image_and_model"),
        ({"image": "a", "params": {"x": 1}}, "params", "not_for_this_kind"),
        ({"model_name": "a", "command": "x"}, "command", "not_for_this_kind"),
        ({"model_name": "a", "env": {"A": "1"}}, "env", "not_for_this_kind"),
        ({"model_name": "a", "volumes": [{}]}, "volumes", "not_for_this_kind"),
        ({"image": "a", "share": True}, "min_vram_mb", "share_needs_vram"),
        ({"image": "a", "share": True, "gpu_count": 0}, "share", "share_without_gpu"),
        (
            {"image": "a", "gpu_count": 0, "min_vram_mb": 5},
            "min_vram_mb",
            "vram_without_gpu",
        ),
    ],
)
def test_fields_that_do_not(data: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(ValidationError) as caught:
        spec.check(data, HostPolicy())
    assert [error.code for error in caught.value.error_dict[field]] == [code]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({"image": "ghcr.io/org/tool:v1"}, "tool"),
        ({"image": "host:5000/tool@sha256:" + "a" * 64}, "tool"),
        ({"image": "a" * 255}, "a" * 100),
        ({"model_name": "summarise"}, "summarise"),
    ],
)
def test_a_job_without_a_name_is_named_after_what_it_runs(
    data: dict[str, Any], name: str
) -> None:
    assert spec.default_name(data) == name

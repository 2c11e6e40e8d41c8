"""SECURITY.md: each sentence that promises something is held by tests, which are named here."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA, VIDEO, SEARCH = "tests/hf_datasets", "tests/hf_datasets/video", "tests/subtle/footage/test_search.py"
HARNESS, SERVE, UPLOAD = "tests/subtle/run", "tests/subtle/service/test_serve.py", "tests/subtle/hub/test_upload.py"
SPACE = "tests/subtle/hub/test_demo_space.py"
RULES, LOADING = "tests/test_architecture.py", "tests/hf_models/encoders/test_loading.py"
CHECKPOINTS, FILTERS = "tests/hf_models/test_hostile_checkpoints.py", "tests/hf_models/test_index_filters.py"
REPORT, PAGES = "tests/subtle/evaluate/test_report.py", f"{HARNESS}/test_pages.py"
DAMAGED = f"{DATA}/test_damaged_files.py::test_a_damaged_file_gives_rows_and_rejections_or_an_error_that_names_it"
STUCK = f"{VIDEO}/test_pool.py::test_stuck_and_dead_workers_are_replaced_and_the_run_goes_on"
NO_CODE = f"{SEARCH}::test_an_index_does_not_decide_that_code_is_run"
NO_PROGRAM = "tests/subtle/test_text_queries.py::test_an_index_does_not_bring_the_program_that_answers"
OWN_FOLDERS = f"{SEARCH}::test_the_folder_of_videos_is_one_that_this_user_named_or_lies_beside_the_index"
NOT_OUTSIDE = f"{SEARCH}::test_nothing_outside_the_folder_of_videos_is_exported"

PROMISES = {
    "Whatever comes from outside is data: it is never executed.": [f"{RULES}::test_data_is_never_executed"],
    "`tests/test_security.py` names the tests that hold each of these sentences.": [
        "tests/test_security.py::test_every_promise_is_held_by_tests_that_are_named_here"
    ],
    "checked value by value": [DAMAGED],
    "a bad row is rejected and counted, a bad file is an error that names it": [
        DAMAGED,
        "tests/hostile/test_indexes.py::test_a_table_from_anyone_is_refused_in_one_line_or_read",
    ],
    "every name in them is answered with a function of ours that gives plain values, or refused": [
        f"{DATA}/sources/test_pickle_reading.py::test_a_hostile_pickle_is_refused",
        f"{DATA}/sources/test_finediving.py::test_a_malicious_pickle_is_refused_and_not_run",
    ],
    "at most 64 MiB": [f"{DATA}/sources/test_finediving.py::test_a_large_file_is_refused_before_it_is_read"],
    "never leave the folder of videos, also not through links": [
        f"{VIDEO}/test_store.py::test_an_id_that_could_leave_the_folder_is_refused",
        f"{VIDEO}/test_store.py::test_links_out_of_the_folder_are_refused",
    ],
    "ordinary files of known containers only, which name no other files": [
        f"{VIDEO}/test_refusals.py::test_a_path_that_is_not_an_ordinary_file_is_refused_without_opening_it",
        f"{VIDEO}/test_refusals.py::test_a_file_that_points_to_other_files_is_refused",
    ],
    "limits of size and length": [f"{VIDEO}/test_reading.py::test_hostile_sizes_and_durations_are_refused"],
    "the pool reads them in processes with a time limit": [STUCK],
    "what they say is checked where it is read, and refused in one line": [
        f"{SEARCH}::test_an_index_that_somebody_changed_is_refused_in_one_line",
        f"{SEARCH}::test_what_is_no_moment_is_named_and_can_be_left_out",
        "tests/hostile/test_indexes.py::test_an_index_from_anyone_is_refused_in_one_line_or_searched",
    ],
    "an exact search refuses a vector that cannot be scored, and leaves no moment out": [
        "tests/hf_models/test_index_store.py"
        "::test_a_vector_that_cannot_be_scored_is_an_error_and_no_moment_that_is_silently_left_out"
    ],
    "the vectors that it keeps lie in your own cache": [
        "tests/hf_models/test_index_matrix.py::test_vectors_lie_in_the_users_cache_in_arrays_that_are_not_read_whole"
    ],
    "their paths never lead out of the folder of videos, which is one that you indexed or named, or lies beside the "
    "index": [NOT_OUTSIDE, OWN_FOLDERS],
    "no index decides that code is run": [NO_CODE],
    "only those that were made on this machine are run, from your own cache": [NO_PROGRAM],
    "without branches, loops, other files or operators of others": [
        "tests/hf_models/test_text_export.py::test_a_program_that_does_more_than_a_text_half_is_refused"
    ],
    "parsed, and written again from the few operators and functions that a filter needs": [
        f"{FILTERS}::test_what_a_filter_does_not_need_is_refused_in_a_line",
        f"{FILTERS}::test_a_filter_cannot_end_the_condition_that_it_stands_in",
    ],
    "processes that are started do not look for modules there": [
        f"{RULES}::test_processes_of_python_do_not_look_for_modules_in_the_working_directory",
        f"{VIDEO}/test_pool.py::test_a_worker_runs_no_module_of_the_working_directory",
        f"{SERVE}::test_chosen_moments_are_exported_and_no_module_of_the_working_directory_runs",
    ],
    "the page of `serve` answers its own machine alone and is framed by nobody": [
        f"{SERVE}::test_another_page_and_another_name_of_this_machine_are_refused",
        f"{SERVE}::test_no_page_may_frame_this_one",
    ],
    "it and the published one serve nothing but copies of their own, by ids that nobody guesses": [
        f"{SERVE}::test_no_other_file_is_served_and_no_path_is_told",
        f"{SPACE}::test_the_published_page_neither_marks_nor_exports_and_is_framed_and_reached_under_any_name",
    ],
    "uploads are removed when it ends, after a kill at the next start, but for those that you marked": [
        "tests/subtle/service/test_marks.py::test_an_upload_that_was_marked_is_kept_with_the_marks",
        f"{SERVE}::test_what_a_killed_page_left_is_removed_at_the_next_start",
    ],
    "errors, tables, lines and results show control characters, and what looks like markup, as they are written": [
        f"{HARNESS}/test_screen.py::test_what_a_recipe_prints_of_a_file_is_shown_as_it_is_written",
        f"{HARNESS}/test_screen.py::test_recipes_print_with_this_console_only",
        f"{SEARCH}::test_a_text_of_an_index_never_moves_the_cursor_in_any_format",
        f"{SEARCH}::test_an_error_never_moves_the_cursor",
        f"{UPLOAD}::test_names_of_files_on_the_hub_do_not_write_to_the_terminal",
    ],
    "weights only, within the size of the file": [
        f"{CHECKPOINTS}::test_a_hostile_checkpoint_is_refused",
        f"{CHECKPOINTS}::test_the_commands_stop_with_one_line_and_within_a_gigabyte",
    ],
    "a model is built only for weights that fit it": [
        f"{CHECKPOINTS}::test_sizes_that_do_not_fit_are_refused_before_a_model_is_built"
    ],
    "what a configuration asks for is compared with the headers of the weights before any of it is built": [
        f"{LOADING}::test_a_configuration_that_asks_for_another_model_than_its_weights_is_refused",
        f"{LOADING}::test_an_adapter_that_asks_for_more_than_its_weights_is_refused",
        f"{LOADING}::test_weights_of_torch_are_compared_with_the_configuration_too",
        "tests/hostile/test_model_folders.py::test_a_mutated_model_folder_works_or_is_refused_by_its_name",
    ],
    "no adapter decides that a module is run": [f"{LOADING}::test_an_adapter_has_no_module_run"],
    "a damaged file is an error that names the folder": [
        f"{LOADING}::test_a_damaged_file_of_a_model_is_named_with_its_folder",
        "tests/subtle/test_running.py::test_whatever_a_library_says_of_a_damaged_model_is_one_line_that_names_its_folder",
    ],
    "a damaged file is an error that names it": [
        "tests/subtle/test_running.py::test_damaged_results_of_an_earlier_run_are_refused",
        "tests/subtle/test_running.py::test_a_damaged_parquet_file_of_an_earlier_run_is_one_line_that_names_it",
    ],
    "the service answers its own machine alone, or requests with its token": [
        "tests/subtle/service/test_api.py::test_what_is_no_request_of_ours_is_refused",
        "tests/subtle/service/test_api.py::test_others_need_the_token_and_too_many_requests_wait",
    ],
    "they name moments by id and send clips, never paths, and get no path of this machine back": [
        "tests/subtle/service/test_api.py::test_what_cannot_be_is_a_problem_that_names_no_path"
    ],
    "requests are limited in size, time and number": [
        "tests/subtle/service/test_api.py::test_what_is_no_request_of_ours_is_refused",
        "tests/subtle/service/test_api.py::test_a_slow_client_and_one_that_goes_leave_the_service_as_it_was",
        "tests/subtle/service/test_api.py::test_others_need_the_token_and_too_many_requests_wait",
    ],
    "an error that names the row, never a result over malformed rows": [
        "tests/metrics/test_hostile_inputs.py::test_mutated_inputs_are_refused_or_give_the_plain_results",
        "tests/metrics/test_refused_inputs.py::test_malformed_input_is_refused_naming_the_row",
    ],
    "kept as text and validated": [
        f"{DATA}/generation/test_errors.py::test_a_permanent_fault_rejects_only_its_row_and_keeps_the_raw_text"
    ],
    "the API key is written nowhere": [
        f"{DATA}/generation/test_generate.py::test_the_api_key_appears_in_no_file_log_or_outcome"
    ],
    "escaped": [
        f"{REPORT}::test_text_from_data_is_escaped",
        f"{DATA}/test_publish.py::test_values_of_the_card_cannot_leave_their_line_or_carry_markup",
        f"{SERVE}::test_labels_with_markup_stay_text",
    ],
    "a page runs its own script only and reaches no network": [
        f"{REPORT}::test_the_page_may_run_its_own_script_and_reach_no_network",
        f"{PAGES}::test_a_form_of_the_user_study_runs_its_own_script_only_and_follows_the_browsers_colors",
    ],
    "read as plain values and checked by name and type": [
        "tests/subtle/test_options.py::test_a_mistake_in_a_yaml_file_is_one_line"
    ],
    "`publish` refuses text with them by file and line": [
        f"{UPLOAD}::test_text_with_a_secret_is_refused_by_file_line_and_kind_and_the_secret_is_not_shown",
        f"{UPLOAD}::test_text_with_a_path_of_any_machine_is_refused",
    ],
    "hidden files stay": [f"{UPLOAD}::test_hidden_files_and_files_of_keys_never_go"],
    "on request (`make test CONSTRAINTS=1`) by version and hash": [
        "tests/test_package.py::test_every_package_is_pinned_with_hashes_and_no_address"
    ],
    "It can have you load the model that it names, a folder of your machine or a name on the Hub, within the "
    "protection of transformers and without code": [NO_CODE],
    "It cannot run a program, have files read, shown, exported or sent to a model that lie outside a folder which you "
    "named (`--video_dir`), indexed yourself, or which lies beside it.": [
        NO_PROGRAM,
        NO_CODE,
        NOT_OUTSIDE,
        OWN_FOLDERS,
    ],
    "What searches compute is kept in your cache, not in the index.": [
        f"{SEARCH}::test_a_search_changes_no_file_of_the_index"
    ],
    "FFmpeg decodes videos in C with the rights of the user: the pool contains a crash or a hang, not an exploit, and "
    "it limits time, not memory.": [STUCK],
    "This project calls neither, but for the published demo, which runs the code that it was published with.": [
        f"{RULES}::test_only_the_published_demo_trusts_code_of_the_hub",
        f"{SPACE}::test_the_models_code_is_run_only_if_it_is_what_the_space_was_published_with",
    ],
}
WARNINGS = {
    "find what it likes",
    "and say of a moment what it likes.",
    "`read_frames` alone runs in your own process.",
    "Decode untrusted videos in a container.",
    "`trust_remote_code=True` and `evaluate.load` of a name on the Hub run the code they load.",
    "A pickle of FineDiving or a checkpoint to convert runs no code, but one made for it can take much time and "
    "memory, or end the process.",
    "Get them from their authors.",
    "`--output_dir` of a training run holds pickles of states, which `accelerate` loads.",
    "Resume only runs of your own.",
    "Folders of models are opened by transformers and PEFT, and of datasets by datasets, within their own protection",
    "names on the Hub are not compared with their weights first.",
    "A hostile caption can talk a language model into a false answer",
    "validation checks the form, not the truth.",
    "What you give to a model on a server (captions, keyframes) leaves your machine.",
    "`python -m hf_datasets` and `python -m metrics` are started by Python with the working directory in its path: run "
    "them in a folder of your own, or with `python -P -m`.",
    "LanceDB reads the files of an index in Rust with the rights of the user.",
}
"""What promises nothing."""


def sentences():
    """The sentences of the document but for its first section, and the parts of them that a semicolon ends."""
    _, _, text = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## What is untrusted")
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)[1:]
    prose = re.sub(r"^(\||#|,).*$", "\n", text, flags=re.MULTILINE)
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n|^- ", prose, flags=re.MULTILINE)]
    parts = [sentence for part in parts for sentence in re.split(r"(?<=[a-z)`]\.) (?=[A-Z`])", part) if sentence]
    return {piece for one in (*rows, *parts) for piece in one.split("; ")}


def test_every_promise_is_held_by_tests_that_are_named_here():
    assert not PROMISES.keys() & WARNINGS
    assert sentences() == PROMISES.keys() | WARNINGS


def test_the_tests_that_hold_a_promise_exist():
    for path, _, name in (test.partition("::") for tests in PROMISES.values() for test in tests):
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"

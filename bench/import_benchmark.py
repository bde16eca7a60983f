"""Turn the files of a public benchmark into a table for dataset=table.

python bench/import_benchmark.py routellm mmlu_high_school_mathematics.csv mmlu_high_school_world_history.csv --out table.csv
python bench/import_benchmark.py routerdc gsm8k-train.json gsm8k-test.json mmlu_train.json mmlu_test.json --probability mmlu --out table.parquet
python bench/import_benchmark.py llmrouter default_routing_train_data.jsonl default_routing_test_data.jsonl --models default_llm.json --out table.csv
python bench/import_benchmark.py routerbench routerbench_0shot.parquet --out table.parquet
python bench/import_benchmark.py llmrouterbench results/bench --out table.parquet
"""  # noqa: E501

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from importers.llmrouter import llmrouter_outcomes
from importers.llmrouterbench import llmrouterbench_outcomes
from importers.routellm import routellm_outcomes
from importers.routerbench import routerbench_outcomes
from importers.routerdc import routerdc_outcomes
from l2d.commands.import_outcomes import add_out, write_outcomes
from l2d.commands.route import refuse_overwriting, user_path
from l2d.data.importers.recorded import RecordedOutcomes
from l2d.utils.user_errors import OneLineParser, answering

SOURCES = {
    "routellm": """CSV files of RouteLLM's evaluations: a column prompt, and one of True or False per model. Columns called
MODEL_response are left out. If there are several files, each is a subject.""",
    "routerdc": """JSON files of RouterDC (shuhao02/RouterDC, datasets/split2_model7): a list of objects with question and scores,
one score per model. A file's name gives its task and split: gsm8k-train.json, mmlu_test.json. LLMRouter's train.json and
test.json of dcrouter_preprocessed can be read too.""",
    "llmrouter": """JSON lines of LLMRouter (ulab-uiuc/LLMRouter, default_routing_train_data.jsonl): query, task_name, model_name
and performance. A name with train or test in it gives the split. With --models, tokens times prices become price_NAME.""",
    "routerbench": """CSV or Parquet files with RouterBench's columns: sample_id, prompt, eval_name, MODEL and MODEL|total_cost.
RouterBench comes as pickles, which can run code when they are read. If you trust them, export them first:
python -c "import pandas; pandas.read_pickle('routerbench_0shot.pkl').to_parquet('routerbench_0shot.parquet')\"""",
    "llmrouterbench": """Result files of LLMRouterBench, DATASET-SPLIT-MODEL-TIME.json, or folders of them (results/bench). Each
has dataset_name, split, model_name and records with index, prompt, score and cost. The latest file of a model and
dataset counts.""",
}


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="import_benchmark.py", description=__doc__)
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    parsers = {}
    for name, about in SOURCES.items():
        parsers[name] = sources.add_parser(name, help=about.split(":")[0], description=about)
        parsers[name].add_argument("files", nargs="+", type=user_path, metavar="FILE")
        add_out(parsers[name])
    help_ = "tasks in which any score above 0 is right"
    parsers["routerdc"].add_argument("--probability", nargs="+", default=[], metavar="TASK", help=help_)
    parsers["llmrouter"].add_argument("--models", type=user_path, metavar="FILE", help="default_llm.json, for prices")
    return parser


def imported(options: argparse.Namespace) -> RecordedOutcomes:
    files: list[Path] = options.files
    if options.source == "routerdc":
        return routerdc_outcomes(files, options.probability)
    if options.source == "llmrouter":
        return llmrouter_outcomes(files, options.models)
    plain = {"routerbench": routerbench_outcomes, "llmrouterbench": llmrouterbench_outcomes}
    return plain.get(options.source, routellm_outcomes)(files)


def main(arguments: Sequence[str] | None = None) -> None:
    with answering():
        options = make_parser().parse_args(arguments)
        models = [options.models] if options.source == "llmrouter" and options.models else []
        refuse_overwriting(options.out, [*options.files, *models])
        write_outcomes(options.out, imported(options))


if __name__ == "__main__":
    main(sys.argv[1:])

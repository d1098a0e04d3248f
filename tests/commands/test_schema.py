import json

import pytest
from click.testing import CliRunner

from proxy.commands.schema import schema


@pytest.mark.parametrize(("name", "key"), [("provider", "operations"), ("policy", "subjects")])
def test_the_format_of_a_file_is_printed_as_json_schema(name: str, key: str) -> None:
    done = CliRunner().invoke(schema, [name])
    assert done.exit_code == 0
    assert key in json.loads(done.output)["properties"]

"""The messages are those of the protocol: compared with the ones that Triton's client was generated with."""

import pytest

from delta_tta.serve.messages import MESSAGES, METHODS, SERVICE, messages

service_pb2 = pytest.importorskip("tritonclient.grpc.service_pb2")


def field(one):
    kind = None if one.message_type is None else one.message_type.full_name
    return one.number, one.type, one.is_repeated, kind, one.containing_oneof and one.containing_oneof.name


@pytest.mark.parametrize("name", MESSAGES)
def test_all_fields_agree(name):
    theirs = service_pb2
    for part in name.split("."):
        theirs = getattr(theirs, part)
    ours = messages()[name].DESCRIPTOR
    assert ours.full_name == theirs.DESCRIPTOR.full_name
    known = {one.name: field(one) for one in theirs.DESCRIPTOR.fields}
    assert {one.name: field(one) for one in ours.fields} == known


def test_the_calls_are_calls_of_the_protocol():
    theirs = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert theirs.full_name == SERVICE
    for name, (request, response) in METHODS.items():
        method = theirs.methods_by_name[name]
        assert (method.input_type.name, method.output_type.name) == (request, response)


def test_a_request_survives_the_way():
    theirs = service_pb2.ModelInferRequest(model_name="a", raw_input_contents=[b"12"])
    theirs.parameters["learn"].bool_param = False
    theirs.inputs.add(name="input", datatype="FP32", shape=[1, 2])
    ours = messages()["ModelInferRequest"].FromString(theirs.SerializeToString())
    assert ours.parameters["learn"].WhichOneof("parameter_choice") == "bool_param"
    assert list(ours.inputs[0].shape) == [1, 2]
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)

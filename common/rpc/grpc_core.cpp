// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/grpc_core.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>

// NOLINTBEGIN(cppcoreguidelines-pro-type-union-access): gRPC's operations and arguments are unions.

namespace ferry {
namespace {

grpc_op op_of(grpc_op_type type, const grpc_op::grpc_op_data& data = {}) {
  return {.op = type, .flags = 0, .reserved = nullptr, .data = data};
}

}  // namespace

grpc_op send_metadata_op() {
  return op_of(GRPC_OP_SEND_INITIAL_METADATA);
}

grpc_op send_message_op(grpc_byte_buffer* message) {
  return op_of(GRPC_OP_SEND_MESSAGE, {.send_message = {.send_message = message}});
}

grpc_op send_status_op(grpc_status_code status, grpc_slice* message) {
  grpc_op op = op_of(GRPC_OP_SEND_STATUS_FROM_SERVER);
  op.data.send_status_from_server.status = status;
  op.data.send_status_from_server.status_details = message;
  return op;
}

grpc_op recv_close_op(int* cancelled) {
  return op_of(GRPC_OP_RECV_CLOSE_ON_SERVER, {.recv_close_on_server = {.cancelled = cancelled}});
}

grpc_op send_close_op() {
  return op_of(GRPC_OP_SEND_CLOSE_FROM_CLIENT);
}

grpc_op recv_metadata_op(grpc_metadata_array* metadata) {
  return op_of(GRPC_OP_RECV_INITIAL_METADATA, {.recv_initial_metadata = {.recv_initial_metadata = metadata}});
}

grpc_op recv_message_op(grpc_byte_buffer** message) {
  return op_of(GRPC_OP_RECV_MESSAGE, {.recv_message = {.recv_message = message}});
}

grpc_op recv_status_op(grpc_metadata_array* metadata, grpc_status_code* status, grpc_slice* message) {
  grpc_op op = op_of(GRPC_OP_RECV_STATUS_ON_CLIENT);
  op.data.recv_status_on_client.trailing_metadata = metadata;
  op.data.recv_status_on_client.status = status;
  op.data.recv_status_on_client.status_details = message;
  return op;
}

grpc_arg string_arg(char* key, char* value) {
  return {.type = GRPC_ARG_STRING, .key = key, .value = {.string = value}};
}

grpc_arg integer_arg(char* key, int value) {
  return {.type = GRPC_ARG_INTEGER, .key = key, .value = {.integer = value}};
}

WireMessage to_wire(const google::protobuf::MessageLite& message) {
  grpc_slice slice = grpc_slice_malloc(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(GRPC_SLICE_START_PTR(slice));
  WireMessage wire(grpc_raw_byte_buffer_create(&slice, 1));
  grpc_slice_unref(slice);
  return wire;
}

std::optional<std::string> bytes_of(grpc_byte_buffer* wire) {
  grpc_byte_buffer_reader reader;
  if (wire == nullptr || grpc_byte_buffer_reader_init(&reader, wire) == 0) return std::nullopt;
  const grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
  grpc_byte_buffer_reader_destroy(&reader);
  std::string bytes(to_text(slice));
  grpc_slice_unref(slice);
  return bytes;
}

bool from_wire(grpc_byte_buffer* wire, google::protobuf::MessageLite& message) {
  const auto bytes = bytes_of(wire);
  return bytes && message.ParseFromString(*bytes);
}

grpc_slice to_slice(const std::string& text) {
  return grpc_slice_from_copied_buffer(text.data(), text.size());
}

std::string_view to_text(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

}  // namespace ferry

// NOLINTEND(cppcoreguidelines-pro-type-union-access)

// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/wire_message.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>

namespace ferry {

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

// SPDX-License-Identifier: Apache-2.0
// Messages as gRPC's core takes and gives them.
#pragma once

#include <grpc/grpc.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <google/protobuf/message_lite.h>

namespace ferry {

struct DestroyBuffer {
  void operator()(grpc_byte_buffer* buffer) const { grpc_byte_buffer_destroy(buffer); }
};
/// A message as it goes over the wire; null: none.
using WireMessage = std::unique_ptr<grpc_byte_buffer, DestroyBuffer>;

WireMessage to_wire(const google::protobuf::MessageLite& message);
/// The bytes of a message, as the filters of its channel have left them; absent when there is none.
std::optional<std::string> bytes_of(grpc_byte_buffer* wire);
/// False when there is none, or it is not of this type.
bool from_wire(grpc_byte_buffer* wire, google::protobuf::MessageLite& message);

/// Text as gRPC takes it: a copy of its own.
grpc_slice to_slice(const std::string& text);
/// Text as gRPC gives it; good for as long as the slice.
std::string_view to_text(const grpc_slice& slice);

}  // namespace ferry

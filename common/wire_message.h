// SPDX-License-Identifier: Apache-2.0
// Messages in the form of gRPC's core.
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
/// A serialized message; null: none.
using WireMessage = std::unique_ptr<grpc_byte_buffer, DestroyBuffer>;

WireMessage to_wire(const google::protobuf::MessageLite& message);
/// The bytes of a message behind the filters of its channel; absent: no message.
std::optional<std::string> bytes_of(grpc_byte_buffer* wire);
/// False: no message, or not one of this type.
bool from_wire(grpc_byte_buffer* wire, google::protobuf::MessageLite& message);

/// Copies text into a slice.
grpc_slice to_slice(const std::string& text);
/// The text of a slice, valid as long as the slice.
std::string_view to_text(const grpc_slice& slice);

}  // namespace ferry

// SPDX-License-Identifier: Apache-2.0
// gRPC's core API: its operations by name, and messages in its form.
#pragma once

#include <grpc/grpc.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <google/protobuf/message_lite.h>

namespace ferry {

// Pointers in an operation must stay valid until the operation is done.

grpc_op send_metadata_op();
grpc_op send_message_op(grpc_byte_buffer* message);

// A server uses these.
grpc_op send_status_op(grpc_status_code status, grpc_slice* message);
grpc_op recv_close_op(int* cancelled);

// A client uses these.
grpc_op send_close_op();
grpc_op recv_metadata_op(grpc_metadata_array* metadata);
grpc_op recv_message_op(grpc_byte_buffer** message);
grpc_op recv_status_op(grpc_metadata_array* metadata, grpc_status_code* status, grpc_slice* message);

grpc_arg string_arg(char* key, char* value);
grpc_arg integer_arg(char* key, int value);

struct DestroyBuffer {
  void operator()(grpc_byte_buffer* buffer) const { grpc_byte_buffer_destroy(buffer); }
};
/// A serialized message; null: none.
using WireMessage = std::unique_ptr<grpc_byte_buffer, DestroyBuffer>;

WireMessage to_wire(const google::protobuf::MessageLite& message);
/// Returns the bytes of a message after its channel's filters; absent: no message.
std::optional<std::string> bytes_of(grpc_byte_buffer* wire);
/// False: no message, or not one of this type.
bool from_wire(grpc_byte_buffer* wire, google::protobuf::MessageLite& message);

grpc_slice to_slice(const std::string& text);
/// The text of a slice, valid as long as the slice.
std::string_view to_text(const grpc_slice& slice);

}  // namespace ferry

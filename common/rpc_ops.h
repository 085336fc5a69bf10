// SPDX-License-Identifier: Apache-2.0
// gRPC's operations by name. Pointers must stay valid until the operation is done.
#pragma once

#include <grpc/grpc.h>

namespace ferry {

grpc_op send_metadata_op();
grpc_op send_message_op(grpc_byte_buffer* message);

// For servers.
grpc_op send_status_op(grpc_status_code status, grpc_slice* message);
grpc_op recv_close_op(int* cancelled);

// For clients.
grpc_op send_close_op();
grpc_op recv_metadata_op(grpc_metadata_array* metadata);
grpc_op recv_message_op(grpc_byte_buffer** message);
grpc_op recv_status_op(grpc_metadata_array* metadata, grpc_status_code* status, grpc_slice* message);

/// Settings of a channel.
grpc_arg string_arg(char* key, char* value);
grpc_arg integer_arg(char* key, int value);

}  // namespace ferry

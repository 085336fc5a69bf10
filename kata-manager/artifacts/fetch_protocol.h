// SPDX-License-Identifier: Apache-2.0
// The protocol of `ferry` and `ferry-fetch`. Input: one JSON object, the request, then end of file. Output:
// one line of JSON for each message; the last has an artifact or an error:
//
//   {"progress":{"done":1048576,"total":734003200}}
//   {"artifact":{"name":"kata-gpu","digest":"sha256:…","files":[…],…}}
//   {"error":{"category":"ferry","code":4,"message":"…","hint":"…"}}
//
// Both programs are of one build, so the protocol has no versions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "kata-manager/artifacts/artifacts.h"

namespace ferry::kata {

struct FetchJob {
  std::filesystem::path host_root;
  FetchRequest request;
};

std::string job_text(const FetchJob& job);
/// Errc::malformed_host: unreadable text.
Result<FetchJob> read_job(std::string_view text);

std::string message_text(const FetchProgress& progress);
std::string message_text(const Artifact& artifact);
std::string message_text(const Error& error);

struct FetchMessage {
  std::optional<FetchProgress> progress;
  std::optional<Artifact> artifact;
  std::optional<Error> error;
};
/// Parses one line. Errc::malformed_host: unreadable text.
Result<FetchMessage> read_message(std::string_view line);

}  // namespace ferry::kata

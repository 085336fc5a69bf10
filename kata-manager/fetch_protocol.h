// SPDX-License-Identifier: Apache-2.0
// What `ferry` and `ferry-fetch` say to each other. In: one JSON object, the request, then the end. Out: a
// line of JSON each time something is to be told, the last one with an artifact or an error:
//
//   {"progress":{"done":1048576,"total":734003200}}
//   {"artifact":{"name":"kata-gpu","digest":"sha256:…","files":[…],…}}
//   {"error":{"category":"ferry","code":4,"message":"…","hint":"…"}}
//
// Both are of one build: there are no versions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "kata-manager/artifacts.h"

namespace ferry {

struct FetchJob {
  std::filesystem::path host_root;
  FetchRequest request;
};

std::string job_text(const FetchJob& job);
/// Errc::malformed_host: it cannot be read.
Result<FetchJob> read_job(std::string_view text);

std::string told_text(const FetchProgress& progress);
std::string told_text(const Artifact& artifact);
std::string told_text(const Error& error);

struct FetchTold {
  std::optional<FetchProgress> progress;
  std::optional<Artifact> artifact;
  std::optional<Error> error;
};
/// One line; Errc::malformed_host: it cannot be read.
Result<FetchTold> read_told(std::string_view line);

}  // namespace ferry

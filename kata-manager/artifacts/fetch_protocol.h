// SPDX-License-Identifier: Apache-2.0
// The protocol of `ferry` and `ferry-fetch`. Input: one JSON object, the request, then end of file. Output:
// one JSON object, an artifact or an error:
//
//   {"artifact":{"name":"kata-gpu","digest":"sha256:…","files":[…],…}}
//   {"error":{"category":"ferry","code":4,"message":"…","hint":"…"}}
//
// Both programs are of one build, so the protocol has no versions.
#pragma once

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

std::string answer_text(const Result<Artifact>& answer);
/// The answer, an error too. Errc::malformed_host: unreadable text.
Result<Artifact> read_answer(std::string_view text);

}  // namespace ferry::kata

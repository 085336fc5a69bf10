// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch_protocol.h"
#include "tests/fuzz/fuzz.h"

// ferry-fetch reads the request. ferry and the agent read its answer, and it has parsed what a registry sent.
void ferry::fuzz::one_input(std::string_view text) {
  if (const auto job = kata::read_job(text)) {
    const auto again = kata::read_job(kata::job_text(*job));
    require(again && kata::job_text(*again) == kata::job_text(*job), "a request reads back as itself");
  } else {
    require(job.error().code == Errc::malformed_host, "a request that cannot be read is said to be");
  }
  const auto answer = kata::read_answer(text);
  const std::string written = kata::answer_text(answer);
  require(kata::answer_text(kata::read_answer(written)) == written, "an answer reads back as itself");
}

// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>

#include "kata-manager/artifacts/fetch_protocol.h"
#include "tests/fuzz/fuzz.h"

namespace {

using ferry::kata::FetchMessage;

template <typename Part>
void reads_back(const FetchMessage& message, std::optional<Part> FetchMessage::*part) {
  if (!(message.*part)) return;
  const std::string text = ferry::kata::message_text(*(message.*part));
  const auto again = ferry::kata::read_message(text);
  ferry::fuzz::require(again && (*again.*part) && ferry::kata::message_text(*(*again.*part)) == text,
                       "a part of an answer reads back as itself");
}

}  // namespace

// ferry-fetch reads the request. hostd and the agent read its answer, and it has parsed what a registry sent.
void ferry::fuzz::one_input(std::string_view text) {
  if (const auto job = kata::read_job(text)) {
    const auto again = kata::read_job(kata::job_text(*job));
    require(again && kata::job_text(*again) == kata::job_text(*job), "a request reads back as itself");
  } else {
    require(job.error().code == Errc::malformed_host, "a request that cannot be read is said to be");
  }
  const auto message = kata::read_message(text);
  if (!message)
    return require(message.error().code == Errc::malformed_host,
                   "an answer that cannot be read is said to be");
  reads_back(*message, &FetchMessage::progress);
  reads_back(*message, &FetchMessage::artifact);
  reads_back(*message, &FetchMessage::error);
}

// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch_protocol.h"

#include <chrono>

#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"

template <>
struct nlohmann::adl_serializer<std::chrono::seconds> {
  static void to_json(json& out, std::chrono::seconds time) { out = time.count(); }
  static void from_json(const json& in, std::chrono::seconds& time) {
    time = std::chrono::seconds(in.get<std::int64_t>());
  }
};

namespace ferry::kata {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ArtifactLimits, bytes, files, layers, document)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FetchRequest, name, url, artifacts_dir, configuration, docker_config,
                                   authorities, registries, proxy, no_proxy, makes_link, allow_setuid,
                                   or_what_is_here, limits, retries, deadline)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FetchJob, host_root, request)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ArtifactFile, path, size, sha256, link)
// Only a record has `earlier_urls`.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Artifact, name, url, digest, folder, version, configuration, files,
                                   changed, notes)

namespace {

// Paths and foreign messages may have any bytes.
std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string job_text(const FetchJob& job) {
  return dump(job);
}

Result<FetchJob> read_job(std::string_view text) {
  try {
    return parse_whole_json(text).get<FetchJob>();
  } catch (const json::exception& error) {
    // The message has only the error's number: the library's message could quote a piece of the credentials.
    return fail(Errc::malformed_host,
                "ferry's request cannot be read (JSON error " + std::to_string(error.id) + ")");
  }
}

std::string answer_text(const Result<Artifact>& answer) {
  if (answer) return dump({{"artifact", *answer}});
  const Error& error = answer.error();
  return dump({{"error",
                {{"category", error.code.category().name()},
                 {"code", error.code.value()},
                 {"message", error.message},
                 {"hint", error.hint}}}});
}

Result<Artifact> read_answer(std::string_view text) {
  try {
    const json value = parse_whole_json(text);
    if (value.contains("error")) {
      const json& error = value.at("error");
      const bool is_ours = error.at("category") == ferry_category().name();
      return fail(
          Error{.code = {error.at("code").get<int>(), is_ours ? ferry_category() : std::generic_category()},
                .message = error.at("message"),
                .hint = error.at("hint")});
    }
    return value.at("artifact").get<Artifact>();
  } catch (const json::exception& error) {
    return fail(Errc::malformed_host, std::string("ferry-fetch's answer cannot be read: ") + error.what());
  }
}

}  // namespace ferry::kata

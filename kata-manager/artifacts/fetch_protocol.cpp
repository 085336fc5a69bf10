// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch_protocol.h"

#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"

template <typename Rep, typename Period>
struct nlohmann::adl_serializer<std::chrono::duration<Rep, Period>> {
  static void to_json(json& out, const std::chrono::duration<Rep, Period>& time) { out = time.count(); }
  static void from_json(const json& in, std::chrono::duration<Rep, Period>& time) {
    time = std::chrono::duration<Rep, Period>(in.get<Rep>());
  }
};

namespace ferry::kata {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ArtifactLimits, bytes, files, layers, document)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FetchPatience, connect, slow, slow_bytes, tries, first_pause,
                                   longest_pause)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FetchRequest, name, url, artifacts_dir, configuration, docker_config,
                                   authorities, registries, proxy, no_proxy, makes_link, allow_setuid,
                                   or_what_is_here, limits, patience, deadline)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FetchJob, host_root, request)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ArtifactFile, path, size, sha256, link)
// Only a record has `earlier_urls`.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Artifact, name, url, digest, folder, version, configuration, files,
                                   changed, notes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FetchProgress, done, total)

namespace {

// Paths and foreign messages may have any bytes.
std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

Error error_of(const json& value) {
  const bool ours = value.at("category") == ferry_category().name();
  return {.code = {value.at("code").get<int>(), ours ? ferry_category() : std::generic_category()},
          .message = value.at("message"),
          .hint = value.at("hint")};
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

std::string message_text(const FetchProgress& progress) {
  return dump({{"progress", progress}});
}

std::string message_text(const Artifact& artifact) {
  return dump({{"artifact", artifact}});
}

std::string message_text(const Error& error) {
  return dump({{"error",
                {{"category", error.code.category().name()},
                 {"code", error.code.value()},
                 {"message", error.message},
                 {"hint", error.hint}}}});
}

Result<FetchMessage> read_message(std::string_view line) {
  try {
    const json value = parse_whole_json(line);
    FetchMessage message;
    if (value.contains("progress")) message.progress = value.at("progress").get<FetchProgress>();
    if (value.contains("artifact")) message.artifact = value.at("artifact").get<Artifact>();
    if (value.contains("error")) message.error = error_of(value.at("error"));
    return message;
  } catch (const json::exception& error) {
    return fail(Errc::malformed_host, std::string("ferry-fetch's answer cannot be read: ") + error.what());
  }
}

}  // namespace ferry::kata

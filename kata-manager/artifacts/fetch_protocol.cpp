// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/fetch_protocol.h"

#include <nlohmann/json.hpp>

#include "common/text/whole_json.h"

namespace ferry::kata {
namespace {

using nlohmann::json;

// Paths and foreign messages may have any bytes.
std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

template <typename T>
void read(const json& object, const char* key, T& into) {
  object.at(key).get_to(into);
}
void read(const json& object, const char* key, std::filesystem::path& into) {
  into = object.at(key).get<std::string>();
}
template <typename Period>
void read(const json& object, const char* key, std::chrono::duration<std::int64_t, Period>& into) {
  into = std::chrono::duration<std::int64_t, Period>(object.at(key).get<std::int64_t>());
}

json limits_json(const ArtifactLimits& limits) {
  return {{"bytes", limits.bytes},
          {"files", limits.files},
          {"layers", limits.layers},
          {"document", limits.document}};
}

json patience_json(const FetchPatience& patience) {
  return {{"connect_ms", patience.connect.count()},
          {"slow_s", patience.slow.count()},
          {"slow_bytes", patience.slow_bytes},
          {"tries", patience.tries},
          {"first_pause_ms", patience.first_pause.count()},
          {"longest_pause_ms", patience.longest_pause.count()}};
}

FetchJob job_of(const json& value) {
  FetchJob job;
  FetchRequest& request = job.request;
  read(value, "host_root", job.host_root);
  read(value, "name", request.name);
  read(value, "url", request.url);
  read(value, "artifacts_dir", request.artifacts_dir);
  read(value, "configuration", request.configuration);
  read(value, "docker_config", request.docker_config);
  read(value, "authorities", request.authorities);
  read(value, "proxy", request.proxy);
  read(value, "no_proxy", request.no_proxy);
  read(value, "architecture", request.architecture);
  read(value, "makes_link", request.makes_link);
  read(value, "allow_setuid", request.allow_setuid);
  read(value, "or_what_is_here", request.or_what_is_here);
  read(value, "deadline_s", request.deadline);
  for (const json& registry : value.at("registries")) {
    RegistryEndpoints& added = request.registries.emplace_back();
    read(registry, "registry", added.registry);
    read(registry, "endpoints", added.endpoints);
  }
  const json& limits = value.at("limits");
  read(limits, "bytes", request.limits.bytes);
  read(limits, "files", request.limits.files);
  read(limits, "layers", request.limits.layers);
  read(limits, "document", request.limits.document);
  const json& patience = value.at("patience");
  read(patience, "connect_ms", request.patience.connect);
  read(patience, "slow_s", request.patience.slow);
  read(patience, "slow_bytes", request.patience.slow_bytes);
  read(patience, "tries", request.patience.tries);
  read(patience, "first_pause_ms", request.patience.first_pause);
  read(patience, "longest_pause_ms", request.patience.longest_pause);
  return job;
}

Artifact artifact_of(const json& value) {
  Artifact artifact;
  read(value, "name", artifact.name);
  read(value, "url", artifact.url);
  read(value, "digest", artifact.digest);
  read(value, "folder", artifact.folder);
  read(value, "version", artifact.version);
  read(value, "configuration", artifact.configuration);
  read(value, "changed", artifact.changed);
  read(value, "notes", artifact.notes);
  for (const json& file : value.at("files")) {
    ArtifactFile& added = artifact.files.emplace_back();
    read(file, "path", added.path);
    read(file, "size", added.size);
    read(file, "sha256", added.sha256);
    read(file, "link", added.link);
  }
  return artifact;
}

Error error_of(const json& value) {
  const bool ours = value.at("category") == ferry_category().name();
  Error error;
  error.code = {value.at("code").get<int>(), ours ? ferry_category() : std::generic_category()};
  read(value, "message", error.message);
  read(value, "hint", error.hint);
  return error;
}

}  // namespace

std::string job_text(const FetchJob& job) {
  const FetchRequest& request = job.request;
  json registries = json::array();
  for (const RegistryEndpoints& registry : request.registries)
    registries.push_back({{"registry", registry.registry}, {"endpoints", registry.endpoints}});
  return dump({{"host_root", job.host_root.string()},
               {"name", request.name},
               {"url", request.url},
               {"artifacts_dir", request.artifacts_dir.string()},
               {"configuration", request.configuration.string()},
               {"docker_config", request.docker_config},
               {"authorities", request.authorities},
               {"registries", std::move(registries)},
               {"proxy", request.proxy},
               {"no_proxy", request.no_proxy},
               {"architecture", request.architecture},
               {"makes_link", request.makes_link},
               {"allow_setuid", request.allow_setuid},
               {"or_what_is_here", request.or_what_is_here},
               {"deadline_s", request.deadline.count()},
               {"limits", limits_json(request.limits)},
               {"patience", patience_json(request.patience)}});
}

Result<FetchJob> read_job(std::string_view text) {
  try {
    return job_of(parse_whole_json(text));
  } catch (const json::exception& error) {
    // The message has only the error's number: the library's message could quote a piece of the credentials.
    return fail(Errc::malformed_host,
                "ferry's request cannot be read (JSON error " + std::to_string(error.id) + ")");
  }
}

std::string message_text(const FetchProgress& progress) {
  return dump({{"progress", {{"done", progress.done}, {"total", progress.total}}}});
}

std::string message_text(const Artifact& artifact) {
  json files = json::array();
  for (const ArtifactFile& file : artifact.files) {
    files.push_back(
        {{"path", file.path.string()}, {"size", file.size}, {"sha256", file.sha256}, {"link", file.link}});
  }
  return dump({{"artifact",
                {{"name", artifact.name},
                 {"url", artifact.url},
                 {"digest", artifact.digest},
                 {"folder", artifact.folder.string()},
                 {"version", artifact.version.string()},
                 {"configuration", artifact.configuration.string()},
                 {"changed", artifact.changed},
                 {"notes", artifact.notes},
                 {"files", std::move(files)}}}});
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
    if (value.contains("progress")) {
      const json& progress = value.at("progress");
      message.progress = {.done = progress.at("done"), .total = progress.at("total")};
    }
    if (value.contains("artifact")) message.artifact = artifact_of(value.at("artifact"));
    if (value.contains("error")) message.error = error_of(value.at("error"));
    return message;
  } catch (const json::exception& error) {
    return fail(Errc::malformed_host, std::string("ferry-fetch's answer cannot be read: ") + error.what());
  }
}

}  // namespace ferry::kata

// SPDX-License-Identifier: Apache-2.0
#include "kata-manager/artifacts/skopeo.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fnmatch.h>
#include <set>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/process/spawn.h"
#include "common/text/encoding.h"
#include "common/text/text.h"
#include "hostfs/descriptor_reads.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/artifacts/strict_json.h"
#include "kata-manager/artifacts/unpack.h"

namespace ferry::kata {
namespace {

using nlohmann::json;

Error wrong(const std::string& key, std::string_view why) {
  return {.code = make_error_code(Errc::invalid_config),
          .message = fmt::format("registry credentials: '{}': {}", key, why),
          .hint = "it is the content of a .dockerconfigjson or .dockercfg"};
}

Result<std::string> text_of(const json& entry, const char* name, const std::string& key) {
  const auto found = entry.find(name);
  if (found == entry.end() || found->is_null()) return std::string();
  if (!found->is_string()) return fail(wrong(key, fmt::format("{} is no text", name)));
  return found->get<std::string>();
}

Result<RegistryCredentials> credentials_of(const json& entry, const std::string& key) {
  RegistryCredentials out;
  for (const auto& [name, into] :
       {std::pair{"username", &out.username}, std::pair{"password", &out.password},
        std::pair{"identitytoken", &out.identity_token}, std::pair{"registrytoken", &out.registry_token}}) {
    auto text = text_of(entry, name, key);
    if (!text) return fail(std::move(text).error());
    *into = std::move(*text);
  }
  const auto packed = text_of(entry, "auth", key);
  if (!packed) return fail(packed.error());
  if (packed->empty()) return out;
  auto pair = from_base64(*packed);
  if (!pair) return fail(wrong(key, "auth is no base64"));
  const auto colon = pair->find(':');
  if (colon == std::string::npos) return fail(wrong(key, "auth is not USER:PASSWORD in base64"));
  // `username` and `password` win over `auth`, because people edit them.
  if (out.username.empty()) out.username = pair->substr(0, colon);
  if (out.password.empty()) out.password = pair->substr(colon + 1);
  // Old docker clients pad the pair with zeros.
  out.password.erase(std::min(out.password.find('\0'), out.password.size()));
  return out;
}

std::pair<std::string, std::string> host_and_path(std::string_view key) {
  for (const std::string_view scheme : {"https://", "http://"})
    if (key.starts_with(scheme)) key.remove_prefix(scheme.size());
  while (key.ends_with('/')) key.remove_suffix(1);
  const auto slash = std::min(key.find('/'), key.size());
  std::string_view path = key.substr(std::min(slash + 1, key.size()));
  if (path == "v1" || path == "v2") path = {};
  return {plain_registry(key.substr(0, slash)), std::string(path)};
}

// A '*' stops at a dot, so that *.example.com does not match evil.com.example.com.
bool host_fits(std::string_view pattern, std::string_view host) {
  if (pattern.find('*') == std::string_view::npos) return pattern == host;
  if (std::ranges::count(pattern, '.') != std::ranges::count(host, '.')) return false;
  for (;;) {
    const auto label = pattern.substr(0, pattern.find('.'));
    const auto own = host.substr(0, host.find('.'));
    if (::fnmatch(std::string(label).c_str(), std::string(own).c_str(), 0) != 0) return false;
    if (label.size() == pattern.size()) return true;
    pattern.remove_prefix(label.size() + 1);
    host.remove_prefix(own.size() + 1);
  }
}

}  // namespace

Result<DockerConfig> DockerConfig::parse(std::string_view text) {
  DockerConfig config;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return config;
  const auto parsed = parse_strict_json(text, "registry credentials", Errc::invalid_config);
  if (!parsed) return fail(parsed.error());
  if (!parsed->is_object()) return fail(wrong("{", "it is no JSON object"));
  config.names_helpers_ = parsed->contains("credsStore") || parsed->contains("credHelpers");
  const bool older = !parsed->contains("auths");
  const json& map = older ? *parsed : parsed->at("auths");
  if (!map.is_object()) return fail(wrong("auths", "it is no map from hosts to credentials"));
  for (const auto& [key, value] : map.items()) {
    const bool names_registry = key.find_first_of(".:") != std::string::npos || key == "localhost";
    if (older && !names_registry) {
      // Docker's own file has further keys. Only entries with credentials must name a registry.
      if (value.is_object() && (value.contains("auth") || value.contains("username")))
        return fail(wrong(key, "it names no registry"));
      continue;
    }
    if (!value.is_object()) return fail(wrong(key, "it is no JSON object"));
    auto credentials = credentials_of(value, key);
    if (!credentials) return fail(std::move(credentials).error());
    if (credentials->empty()) continue;  // left empty for a helper
    auto [host, path] = host_and_path(key);
    config.entries_.push_back(
        {.host = std::move(host), .path = std::move(path), .key = key, .credentials = *credentials});
  }
  const auto rank = [](const Entry& entry) {
    return std::tuple(-static_cast<std::ptrdiff_t>(entry.path.size()),
                      entry.host.find('*') != std::string::npos,
                      -static_cast<std::ptrdiff_t>(entry.host.size()), entry.key.size(), entry.key);
  };
  std::ranges::sort(config.entries_, {}, rank);
  return config;
}

RegistryCredentials DockerConfig::credentials(std::string_view registry, std::string_view repository) const {
  const std::string host = plain_registry(registry);
  for (const Entry& entry : entries_) {
    const bool has_path =
        entry.path.empty() || repository == entry.path || repository.starts_with(entry.path + "/");
    if (has_path && host_fits(entry.host, host)) return entry.credentials;
  }
  return {};
}

namespace {

// Names in the folder.
constexpr const char* kPolicy = "policy.json";
constexpr const char* kRegistries = "registries.conf";
constexpr const char* kAuthorities = "authorities";
constexpr const char* kImage = "image";

// The user and group of skopeo where this process is root. No file belongs to it, and no other program runs
// as it: a process of the same user could read the credentials in skopeo's memory.
constexpr uid_t kNoRights = 64'713;

// The parts of an endpoint's URL; the host is empty if it is none.
RegistryEndpoint endpoint_of(std::string_view url) {
  constexpr std::string_view kPlain = "http://";
  constexpr std::string_view kTls = "https://";
  const bool in_the_clear = url.starts_with(kPlain);
  if (!in_the_clear && !url.starts_with(kTls)) return {};
  std::string_view location = url.substr(in_the_clear ? kPlain.size() : kTls.size());
  while (location.ends_with('/')) location.remove_suffix(1);
  const std::string_view host = location.substr(0, location.find('/'));
  // The grammar of references is that of skopeo's files, which quotes and line ends would break.
  const auto reference = ImageReference::parse(fmt::format("{}/x", location));
  const bool is_host = reference && reference->registry == plain_registry(host) && reference->tag == "latest";
  if (!is_host) return {};
  return {.host = std::string(host), .location = std::string(location), .in_the_clear = in_the_clear};
}

}  // namespace

Result<std::vector<RegistryEndpoint>> registry_endpoints(const ImageReference& reference,
                                                         const FetchRequest& request,
                                                         const DockerConfig& credentials) {
  std::vector<std::string> urls;
  std::set<std::string> seen;
  for (const auto& [registry, servers] : request.registries) {
    const std::string name = plain_registry(registry);
    if (!seen.insert(name).second)
      return fail(Errc::usage, fmt::format("registry {} is there twice", registry),
                  "put its endpoints into one list");
    if (name == reference.registry) urls = servers;
  }
  RegistryEndpoint itself{.host = reference.registry,
                          .location = reference.registry,
                          .in_the_clear = is_loopback(reference.registry)};
  std::vector<RegistryEndpoint> endpoints;
  for (const std::string& url : urls) {
    RegistryEndpoint endpoint = endpoint_of(url);
    if (endpoint.host.empty())
      return fail(
          Errc::usage,
          fmt::format("endpoint '{}' of registry {} is no URL of a registry", url, reference.registry),
          "write https://HOST[:PORT][/PATH], or http:// for one without TLS");
    if (plain_registry(endpoint.location) == reference.registry) itself.in_the_clear = endpoint.in_the_clear;
    endpoints.push_back(std::move(endpoint));
  }
  // Skopeo asks the registry itself last, and that need not be said twice.
  if (!endpoints.empty() && plain_registry(endpoints.back().location) == reference.registry)
    endpoints.pop_back();
  endpoints.push_back(std::move(itself));
  for (RegistryEndpoint& endpoint : endpoints)
    endpoint.credentials = credentials.credentials(endpoint.host, reference.repository);
  return endpoints;
}

std::string registries_conf(std::span<const RegistryEndpoint> endpoints) {
  const auto server_text = [](const RegistryEndpoint& endpoint) {
    return fmt::format("location = \"{}\"\ninsecure = {}\n", endpoint.location, endpoint.in_the_clear);
  };
  const RegistryEndpoint& itself = endpoints.back();
  std::string text = fmt::format("[[registry]]\nprefix = \"{}\"\n{}", itself.location, server_text(itself));
  for (const RegistryEndpoint& mirror : endpoints.first(endpoints.size() - 1))
    text += "[[registry.mirror]]\n" + server_text(mirror);
  return text;
}

Result<std::string> auth_file(std::span<const RegistryEndpoint> endpoints) {
  nlohmann::json auths = nlohmann::json::object();
  for (const RegistryEndpoint& endpoint : endpoints) {
    const RegistryCredentials& own = endpoint.credentials;
    if (own.empty()) continue;
    if (!own.registry_token.empty())
      return fail(Errc::invalid_config,
                  fmt::format("registry credentials: '{}': registrytoken cannot be used", endpoint.host),
                  "give username and password, or an identitytoken");
    auto& entry = auths[plain_registry(endpoint.host)];
    entry["auth"] = to_base64(own.username + ":" + own.password);
    if (!own.identity_token.empty()) entry["identitytoken"] = own.identity_token;
  }
  return nlohmann::json{{"auths", std::move(auths)}}.dump();
}

namespace {

Result<> write_new(SafeTree& tree, const InnerParts& path, const std::string& text) {
  const auto file = tree.file(path, 0644);
  if (!file) return fail(file.error());
  if (::write(file->get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) return {};
  return fail(error_from_errno(errno, "write " + path.back()));
}

// An option of prlimit(1). A limit that is lower already stays.
std::string limit_option(const char* name, __rlimit_resource resource, rlim_t most) {
  rlimit now{};
  if (::getrlimit(resource, &now) == 0) most = std::min(most, now.rlim_max);
  return most == RLIM_INFINITY ? fmt::format("--{}=unlimited", name) : fmt::format("--{}={}", name, most);
}

// The words of skopeo's last line, without the time and the level in front of them.
std::string last_words(std::string_view text) {
  constexpr std::string_view kMessage = "msg=\"";
  text = trimmed(text);
  text.remove_prefix(std::min(text.rfind('\n') + 1, text.size()));
  const auto at = text.find(kMessage);
  if (at == std::string_view::npos || !text.ends_with('"')) return std::string(text);
  text = text.substr(at + kMessage.size(), text.size() - at - kMessage.size() - 1);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    out.push_back(text[i]);
  }
  return out;
}

// Skopeo's failures are all of one status, and its words tell them apart. Words that are not known are a
// failure that no retry mends. The registry's words count, not those of its mirrors, and no words of `image`.
Error error_of(const std::string& words, const std::string& image) {
  struct Row {
    std::string_view part;
    std::error_code code;
  };
  const std::array rows = {
      Row{"no space left on device", std::make_error_code(std::errc::no_space_on_device)},
      Row{"manifest unknown", Errc::not_found},
      Row{"name unknown", Errc::not_found},
      Row{"404 (Not Found)", Errc::not_found},
      Row{"StatusCode: 404", Errc::not_found},
      Row{"x509: ", Errc::failed},
      Row{"dial tcp", Errc::unreachable},
      Row{"proxyconnect tcp", Errc::unreachable},
      Row{"connection reset", Errc::unreachable},
      Row{"broken pipe", Errc::unreachable},
      Row{"timeout", Errc::unreachable},
      Row{"EOF", Errc::unreachable},
      Row{"toomanyrequests", Errc::unreachable},
      Row{"too many requests", Errc::unreachable},
      Row{"StatusCode: 429", Errc::unreachable},
      Row{"StatusCode: 5", Errc::unreachable},
      Row{"HTTP status: 5", Errc::unreachable},
      Row{"code from registry 5", Errc::unreachable},
  };
  std::string judged = words;
  constexpr std::string_view kEndOfMirrors = "]): ";
  if (judged.find("(Mirrors also failed: [") != std::string::npos)
    if (const auto end = judged.rfind(kEndOfMirrors); end != std::string::npos)
      judged.erase(0, end + kEndOfMirrors.size());
  for (auto at = judged.find(image); at != std::string::npos; at = judged.find(image))
    judged.erase(at, image.size());
  const auto row =
      std::ranges::find_if(rows, [&](const Row& one) { return judged.find(one.part) != std::string::npos; });
  return {
      .code = row == rows.end() ? make_error_code(Errc::failed) : row->code,
      .message = words.empty() ? "skopeo failed" : words,
      .hint = words.ends_with("permission denied")
                  ? "skopeo runs as a user without rights: let all users pass the folders above artifactsDir"
                  : ""};
}

}  // namespace

Result<Skopeo> Skopeo::prepare(UniqueFd folder, const ImageReference& reference,
                               std::span<const RegistryEndpoint> endpoints, const FetchRequest& request) {
  Skopeo skopeo(std::move(folder), reference.registry + "/" + reference.repository, request);
  // Skopeo gets the variables that lead to the network alone. Without a home it reads and keeps nothing
  // there.
  Environment& variables = skopeo.environment_;
  variables["HOME"] = "/nonexistent";
  const Environment ours = process_environment();
  for (const char* name :
       {"PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"})
    if (const auto found = ours.find(name); found != ours.end()) variables.insert(*found);
  if (!request.proxy.empty()) variables["HTTP_PROXY"] = variables["HTTPS_PROXY"] = request.proxy;
  if (!request.no_proxy.empty()) variables["NO_PROXY"] = fmt::format("{}", fmt::join(request.no_proxy, ","));

  const auto credentials = auth_file(endpoints);
  if (!credentials) return fail(credentials.error());
  auto kept = memory_file(*credentials);
  if (!kept) return fail(std::move(kept).error());
  skopeo.credentials_ = std::move(*kept);

  const UniqueFd& at = skopeo.folder_;
  SafeTree tree(UniqueFd(::openat(at.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), request.limits);
  // The digest is the proof, so no signature is asked for.
  auto written = write_new(tree, {kPolicy}, R"({"default":[{"type":"insecureAcceptAnything"}]})");
  if (written) written = write_new(tree, {kRegistries}, registries_conf(endpoints));
  if (written) written = write_new(tree, {kAuthorities, "own.crt"}, request.authorities);
  if (!written) return fail(std::move(written).error().during("skopeo's files"));
  const bool is_root = ::geteuid() == 0;
  if (::fchmodat(at.get(), kAuthorities, 0755, 0) != 0 ||
      (is_root && ::fchown(at.get(), kNoRights, kNoRights) != 0))
    return fail(error_from_errno(errno, "give skopeo its folder"));
  return skopeo;
}

std::string Skopeo::image(const std::string& tag_or_digest) const {
  const bool is_digest = tag_or_digest.find(':') != std::string::npos;
  return fmt::format("docker://{}{}{}", repository_, is_digest ? '@' : ':', tag_or_digest);
}

Result<std::string> Skopeo::run(const std::vector<std::string>& words, const Limits& limits) const {
  const auto until = std::min(until_, std::chrono::steady_clock::now() + limits.time);
  std::chrono::seconds pause{1};
  // Skopeo's own retries leave out a connection that was cut off.
  for (unsigned left = request_->retries;; --left, pause *= 2) {
    Limits rest = limits;
    rest.time = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    auto output = run_once(words, rest);
    const bool may_mend = !output && output.error().code == Errc::unreachable && output.error().hint.empty();
    if (!may_mend || left == 0 || std::chrono::steady_clock::now() + pause >= until) return output;
    std::this_thread::sleep_for(pause);
  }
}

Result<std::string> Skopeo::run_once(const std::vector<std::string>& words, const Limits& limits) const {
  std::vector<std::string> all = {"setpriv", "--no-new-privs", "--pdeathsig=KILL"};
  if (::geteuid() == 0)
    all.insert(all.end(), {fmt::format("--reuid={}", kNoRights), fmt::format("--regid={}", kNoRights),
                           "--clear-groups"});
  // Go reserves more addresses than this process may have.
  all.insert(
      all.end(),
      {"--", "prlimit", limit_option("fsize", RLIMIT_FSIZE, limits.file_bytes),
       limit_option("core", RLIMIT_CORE, 0), limit_option("as", RLIMIT_AS, RLIM_INFINITY), "--", "skopeo",
       fmt::format("--command-timeout={}s", std::chrono::ceil<std::chrono::seconds>(limits.time).count()),
       "--policy", kPolicy, "--registries-conf", kRegistries, "--registries.d", kAuthorities});
  all.insert(all.end(), words.begin(), words.end());
  std::string said;
  const auto hear = [&said](std::string_view text) {
    constexpr std::size_t kMost = 8192;
    said += text;
    if (said.size() > kMost) said.erase(0, said.size() - kMost);
  };
  auto output = run_for_output(
      "setpriv", all,
      {.in = credentials_.get(), .own_session = true, .variables = environment_, .folder = folder_.get()},
      {.bytes = limits.output_bytes, .time = limits.time}, hear);
  constexpr const char* kInstall = "install skopeo, which pulls artifacts, and util-linux";
  if (!output && is_gone(output.error())) return fail(Errc::unreachable, output.error().message, kInstall);
  if (!output) return fail(std::move(output).error().during("skopeo"));
  if (output->status == 0) return std::move(output->text);
  Error error = error_of(last_words(said), repository_);
  constexpr int kNotFound = 127;  // of setpriv and prlimit, as of shells
  if (output->status == kNotFound) error = {make_error_code(Errc::unreachable), error.message, kInstall};
  return fail(std::move(error));
}

Result<Skopeo::Document> Skopeo::manifest(const std::string& tag_or_digest) const {
  constexpr std::chrono::minutes kLongEnough{5};
  const std::uint64_t most = request_->limits.document;
  auto bytes = run({"inspect", "--raw", "--authfile=/dev/stdin", fmt::format("--cert-dir={}", kAuthorities),
                    image(tag_or_digest)},
                   {.file_bytes = most, .output_bytes = most, .time = kLongEnough});
  if (!bytes) return fail(std::move(bytes).error());
  const auto asked = Digest::parse(tag_or_digest);
  Document document{.bytes = std::move(*bytes), .digest = {}};
  ContentHash hash;
  hash.add(document.bytes);
  document.digest.hex = hash.hex();
  if (asked && document.digest != *asked)
    return fail(Errc::failed, fmt::format("manifest {}: what came has the digest {}", tag_or_digest,
                                          document.digest.text()));
  return document;
}

Result<UniqueFd> Skopeo::copy(const Digest& manifest, std::uint64_t most) const {
  constexpr std::size_t kWords = std::size_t{1} << 16U;
  const auto copied = run(
      {"copy", "--quiet", "--preserve-digests", "--remove-signatures", "--src-authfile=/dev/stdin",
       fmt::format("--src-cert-dir={}", kAuthorities), image(manifest.text()), fmt::format("dir:{}", kImage)},
      {.file_bytes = std::max(most, request_->limits.document),
       .output_bytes = kWords,
       .time = request_->deadline});
  if (!copied) return fail(copied.error());
  UniqueFd blobs(::openat(folder_.get(), kImage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!blobs.valid()) return fail(error_from_errno(errno, "open what skopeo has written"));
  return blobs;
}

}  // namespace ferry::kata

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fnmatch.h>
#include <set>
#include <thread>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/text/encoding.h"
#include "common/text/json.h"
#include "common/text/text.h"
#include "kata-manager/fetch/registry.h"
#include "kata-manager/fetch/strict_json.h"

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

bool path_fits(std::string_view path, std::string_view repository) {
  return path.empty() || path == repository ||
         (repository.starts_with(path) && repository[path.size()] == '/');
}

bool names_a_host(std::string_view key) {
  return key.find_first_of(".:") != std::string_view::npos || key == "localhost";
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
    if (older && !names_a_host(key)) {
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
  for (const Entry& entry : entries_)
    if (host_fits(entry.host, host) && path_fits(entry.path, repository)) return entry.credentials;
  return {};
}

namespace {

Result<RegistryEndpoint> endpoint_of(std::string_view url, const ImageReference& reference) {
  const auto wrong = [&](std::string_view why) {
    return fail(Errc::usage, fmt::format("endpoint '{}' of registry {} {}", url, reference.registry, why),
                "write https://HOST[:PORT][/PATH], or http:// for one without TLS");
  };
  const auto scheme_end = url.find("://");
  if (scheme_end == std::string_view::npos) return wrong("has no scheme");
  std::string_view rest = url.substr(scheme_end + 3);
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const auto slash = std::min(rest.find('/'), rest.size());
  const std::string_view host = rest.substr(0, slash);
  const std::string_view path = rest.substr(slash);
  if (url.find_first_of("?#@ ") != std::string_view::npos) return wrong("has more than a host and a path");
  auto origin = HttpOrigin::of(std::string(url));
  if (!origin) return wrong("is no URL of http or https");
  return RegistryEndpoint{
      .host = std::string(host),
      .base_url = fmt::format("{}://{}/v2{}/{}", origin->scheme, host, path, reference.repository),
      .origin = std::move(*origin)};
}

std::string own_url(const ImageReference& reference) {
  if (reference.registry == "docker.io") return "https://registry-1.docker.io";
  return (is_loopback(reference.registry) ? "http://" : "https://") + reference.registry;
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
  std::vector<RegistryEndpoint> endpoints;
  bool itself = false;
  for (const std::string& url : urls) {
    auto endpoint = endpoint_of(url, reference);
    if (!endpoint) return fail(std::move(endpoint).error());
    itself |= plain_registry(endpoint->host) == reference.registry;
    endpoints.push_back(std::move(*endpoint));
  }
  if (!itself) {
    auto endpoint = endpoint_of(own_url(reference), reference);
    if (!endpoint) return fail(std::move(endpoint).error());
    endpoints.push_back(std::move(*endpoint));
  }
  for (RegistryEndpoint& endpoint : endpoints) {
    endpoint.credentials = credentials.credentials(endpoint.host, reference.repository);
    endpoint.token = endpoint.credentials.registry_token;
  }
  return endpoints;
}

namespace {

constexpr int kOk = 200;
constexpr int kUnauthorized = 401;
constexpr int kForbidden = 403;
constexpr int kNotFound = 404;
constexpr std::uint64_t kMostOfToken = 1ULL << 20;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool may_mend(int status) {
  return status == 408 || status == 429 || (status >= 500 && status < 600);
}

// A server's text as one line that a terminal can show: at most 200 bytes, no control characters.
std::string shown(std::string_view text) {
  constexpr std::size_t kEnough = 200;
  std::string out(beginning_of(text, kEnough));
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return out;
}

// The first entry of the registry's `errors`.
std::string reason_in(const std::string& body) {
  const auto parsed = parse_strict_json(body, "", Errc::malformed_host);
  if (!parsed) return {};
  const json& errors = json_at(*parsed, "errors");
  if (!errors.is_array() || errors.empty()) return {};
  std::string out;
  for (const char* key : {"code", "message"})
    if (const json& said = json_at(errors.front(), key); said.is_string())
      out += ": " + shown(said.get_ref<const std::string&>());
  return out;
}

// A token goes into a header, where a line end would begin another header.
bool is_token_text(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
}

std::string parameter(const AuthChallenge& challenge, const std::string& name) {
  const auto found = challenge.parameters.find(name);
  return found == challenge.parameters.end() ? std::string() : found->second;
}

}  // namespace

RegistrySession::RegistrySession(HttpClient& http, const FetchPatience& patience,
                                 std::function<void(std::chrono::milliseconds)> pause,
                                 std::span<const RegistryEndpoint> endpoints)
    : http_(&http), patience_(patience), pause_(std::move(pause)) {
  if (!pause_) pause_ = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); };
  for (const RegistryEndpoint& endpoint : endpoints)
    if (endpoint.origin.scheme == "http") in_the_clear_.push_back(endpoint.origin);
}

// A server without TLS may be an attacker's: it may lead to https, the loopback and listed servers only.
Result<> RegistrySession::may_be_asked(const HttpOrigin& origin) const {
  if (origin.scheme == "https" || origin.is_loopback()) return {};
  if (std::ranges::find(in_the_clear_, origin) != in_the_clear_.end()) return {};
  return fail(Errc::failed, fmt::format("it leads to {}, without TLS", origin.text()),
              "plain HTTP is spoken only with the endpoints that say so");
}

Result<HttpReply> RegistrySession::ask_once(RegistryEndpoint& endpoint, const HttpRequest& question) {
  constexpr int kMostRedirects = 5;
  std::string url = endpoint.base_url + question.url;
  HttpOrigin origin = endpoint.origin;
  bool answered = false;
  for (int redirects = 0;;) {
    HttpRequest request = question;
    request.url = url;
    const bool own = origin == endpoint.origin;
    if (own && !endpoint.token.empty()) {
      request.headers.push_back("Authorization: Bearer " + endpoint.token);
    } else if (own && endpoint.basic) {
      request.username = endpoint.credentials.username;
      request.password = endpoint.credentials.password;
    }
    auto reply = http_->perform(request);
    if (!reply) return reply;
    if (reply->status == kUnauthorized && own && !answered) {
      answered = true;  // once only: a fresh token has not expired
      auto ready = authenticate(endpoint, *reply);
      if (!ready) return fail(std::move(ready).error());
      if (*ready) continue;
    }
    if (!is_redirect(reply->status)) return reply;
    if (++redirects > kMostRedirects)
      return fail(Errc::malformed_host, fmt::format("{}: it redirects without end", endpoint.host));
    auto next = resolve_url(url, reply->header("location"));
    if (!next) return fail(std::move(next).error().during(endpoint.host + ": redirect"));
    auto next_origin = HttpOrigin::of(*next);
    if (!next_origin) return fail(std::move(next_origin).error().during(endpoint.host + ": redirect"));
    if (origin.scheme == "https" && next_origin->scheme != "https")
      return fail(Errc::failed,
                  fmt::format("{}: it redirects from https to {}", endpoint.host, next_origin->text()));
    url = std::move(*next);
    origin = std::move(*next_origin);
    if (auto may = may_be_asked(origin); !may)
      return fail(std::move(may).error().during(endpoint.host + ": redirect"));
  }
}

Result<HttpReply> RegistrySession::patiently(const std::function<Result<HttpReply>()>& once,
                                             const std::function<std::uint64_t()>& have) {
  constexpr std::uint64_t kGain = 1ULL << 20;
  auto next_pause = patience_.first_pause;
  std::uint64_t mark = have ? have() : 0;
  for (unsigned failures = 0;;) {
    auto reply = once();
    const bool again = reply ? may_mend(reply->status) : reply.error().code == Errc::unreachable;
    if (!again) return reply;
    if (have && have() >= mark + kGain) {
      mark = have();
      failures = 0;
      next_pause = patience_.first_pause;
    }
    if (++failures >= patience_.tries) return reply;
    const auto asked = reply ? std::chrono::milliseconds(reply->retry_after) : std::chrono::milliseconds(0);
    pause_(std::min(std::max(next_pause, asked), patience_.longest_pause));
    next_pause = std::min(next_pause * 2, patience_.longest_pause);
  }
}

// True: a new request may succeed.
Result<bool> RegistrySession::authenticate(RegistryEndpoint& endpoint, const HttpReply& refusal) {
  std::vector<AuthChallenge> challenges;
  const auto [first, last] = refusal.headers.equal_range("www-authenticate");
  for (auto header = first; header != last; ++header)
    for (AuthChallenge& challenge : parse_auth_challenges(header->second))
      challenges.push_back(std::move(challenge));
  const auto of = [&](std::string_view scheme) {
    return std::ranges::find(challenges, scheme, &AuthChallenge::scheme);
  };
  if (const auto bearer = of("bearer"); bearer != challenges.end()) {
    auto fresh = token(endpoint, parameter(*bearer, "realm"), parameter(*bearer, "service"),
                       parameter(*bearer, "scope"));
    if (!fresh) return fail(std::move(fresh).error());
    endpoint.token = std::move(*fresh);
    return true;
  }
  const bool had = endpoint.basic;
  endpoint.basic = of("basic") != challenges.end() && !endpoint.credentials.username.empty();
  if (endpoint.basic) endpoint.token.clear();
  return endpoint.basic && !had;
}

Result<std::string> RegistrySession::token(const RegistryEndpoint& endpoint, const std::string& realm,
                                           const std::string& service, const std::string& scope) {
  const std::string what = fmt::format("{}: token", endpoint.host);
  const auto origin = HttpOrigin::of(realm);
  if (!origin) return fail(Error(origin.error()).during(what));
  if (origin->scheme != "https" && endpoint.origin.scheme == "https")
    return fail(Errc::failed,
                fmt::format("{}: it sends credentials to {}, without TLS", what, origin->text()));
  if (auto may = may_be_asked(*origin); !may) return fail(std::move(may).error().during(what));
  const std::string query =
      fmt::format("service={}&scope={}", percent_escaped(service), percent_escaped(scope));
  HttpRequest request{.url = realm, .most_text = kMostOfToken};
  if (!endpoint.credentials.identity_token.empty()) {
    request.form = fmt::format("grant_type=refresh_token&client_id=ferry&{}&refresh_token={}", query,
                               percent_escaped(endpoint.credentials.identity_token));
  } else {
    request.url += (realm.find('?') == std::string::npos ? "?" : "&") + query;
    request.username = endpoint.credentials.username;
    request.password = endpoint.credentials.password;
  }
  const auto reply = patiently([&] { return http_->perform(request); });
  if (!reply) return fail(Error(reply.error()).during(what));
  if (reply->status != kOk) return fail(error_of(*reply, endpoint).during("token"));
  const auto parsed = parse_strict_json(reply->text, what, Errc::malformed_host);
  if (!parsed) return fail(parsed.error());
  std::string text = text_at(*parsed, "token");
  if (text.empty()) text = text_at(*parsed, "access_token");
  if (!is_token_text(text)) return fail(Errc::malformed_host, what + ": there is none in the answer");
  return text;
}

Error error_of(const HttpReply& reply, const RegistryEndpoint& endpoint) {
  Error error{.code = make_error_code(Errc::malformed_host),
              .message = fmt::format("{}: HTTP {}{}", endpoint.host, reply.status, reason_in(reply.text)),
              .hint = {}};
  if (reply.status == kNotFound) {
    error.code = make_error_code(Errc::not_found);
  } else if (reply.status == kUnauthorized || reply.status == kForbidden) {
    error.code = make_error_code(Errc::failed);
    error.hint = endpoint.credentials.empty()
                     ? fmt::format("there are no credentials for {}: give some", endpoint.host)
                     : fmt::format("the credentials for {} do not let in", endpoint.host);
  } else if (may_mend(reply.status)) {
    error.code = make_error_code(Errc::unreachable);
  }
  return error;
}

}  // namespace ferry::kata

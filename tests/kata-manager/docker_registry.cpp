// SPDX-License-Identifier: Apache-2.0
#include "tests/kata-manager/docker_registry.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <curl/curl.h>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "common/process/spawn.h"
#include "tests/support/must.h"

namespace ferry::test {
namespace {

constexpr const char* kRepository = "/v2/kata/gpu";

struct FreeEasy {
  void operator()(CURL* easy) const { ::curl_easy_cleanup(easy); }
};
struct FreeList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};

// What is of one connection is the next one's to say anew.
bool goes_on(std::string_view header) {
  constexpr std::array<std::string_view, 3> kOfOneConnection = {
      "Content-Length:", "Connection:", "Transfer-Encoding:"};
  return std::ranges::none_of(kOfOneConnection,
                              [&](std::string_view name) { return header.starts_with(name); });
}

std::size_t take_header(const char* bytes, std::size_t size, std::size_t count, void* to) {
  std::string_view line(bytes, size * count);
  line = line.substr(0, line.find_last_not_of("\r\n") + 1);
  if (line.find(':') != std::string_view::npos && goes_on(line))
    static_cast<HttpAnswer*>(to)->headers.emplace_back(line);
  return size * count;
}

std::size_t take_body(const char* bytes, std::size_t size, std::size_t count, void* to) {
  static_cast<HttpAnswer*>(to)->body.append(bytes, size * count);
  return size * count;
}

}  // namespace

std::string DockerRegistry::program() {
  const char* const named = std::getenv("FERRY_DOCKER_REGISTRY");
  return named == nullptr ? "" : named;
}

void DockerRegistry::serve(Terms terms) {
  stop();
  terms_ = std::move(terms);
  const std::string root = folder_.path().string();
  const std::string tls =
      terms_.tls ? fmt::format("  tls:\n    certificate: {0}/cert.pem\n    key: {0}/key.pem\n", root) : "";
  folder_.file("config.yml",
               fmt::format("version: 0.1\nlog:\n  accesslog:\n    disabled: true\n  level: error\n"
                           "storage:\n  filesystem:\n    rootdirectory: {}/storage\nhttp:\n  addr: {}\n{}{}",
                           root, address(), tls, terms_.more));
  pid_ = must(spawn(program(), {"docker-registry", "serve", root + "/config.yml"}, {}));
  // It answers once it has its port.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!connected_to_loopback(port_).valid()) {
    if (std::chrono::steady_clock::now() > until) throw std::runtime_error("docker-registry does not answer");
    std::this_thread::yield();
  }
}

void DockerRegistry::stop() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGTERM);
  reap(std::exchange(pid_, -1));
}

std::filesystem::path DockerRegistry::blob_path(const std::string& digest) {
  const std::string hex = digest.substr(digest.find(':') + 1);
  return std::filesystem::path("docker/registry/v2/blobs/sha256") / hex.substr(0, 2) / hex / "data";
}

void DockerRegistry::damage_blob(const std::string& digest, const std::string& bytes) {
  folder_.file("storage" / blob_path(digest), bytes);
}

// As clients push: an upload is begun, and all of it comes at once.
void DockerRegistry::keep_blob(const std::string& bytes) {
  const HttpAnswer begun =
      push({.method = "POST"}, url() + kRepository + std::string("/blobs/uploads/"), 202);
  const std::string name = "Location: ";
  const auto location = std::ranges::find_if(
      begun.headers, [&](const std::string& header) { return header.starts_with(name); });
  if (location == begun.headers.end()) throw std::runtime_error("docker-registry begins no upload");
  push({.method = "PUT", .headers = {{"content-type", "application/octet-stream"}}, .body = bytes},
       location->substr(name.size()) + "&digest=" + sha256_of_text(bytes), 201);
}

void DockerRegistry::keep_manifest(const std::string& tag, const std::string& type, const std::string& text) {
  push({.method = "PUT", .headers = {{"content-type", type}}, .body = text},
       url() + kRepository + "/manifests/" + tag, 201);
}

HttpAnswer DockerRegistry::push(const ReceivedRequest& question, const std::string& url, int desired) const {
  HttpAnswer answer = ask(question, url);
  if (answer.status != desired)
    throw std::runtime_error(fmt::format("{} {}: {} {}", question.method, url, answer.status, answer.body));
  return answer;
}

HttpAnswer DockerRegistry::ask(const ReceivedRequest& question, const std::string& url) const {
  const std::unique_ptr<CURL, FreeEasy> easy(::curl_easy_init());
  std::unique_ptr<curl_slist, FreeList> headers;
  const auto add = [&](const std::string& header) {
    headers.reset(::curl_slist_append(headers.release(), header.c_str()));
  };
  add("Expect:");  // 100-continue, of which nobody has a use here
  for (const auto& [name, value] : question.headers)
    if (name != "host" && name != "content-length" && name != "connection")
      add(fmt::format("{}: {}", name, value));
  HttpAnswer answer;
  const std::string authority = (folder_.path() / "cert.pem").string();
  ::curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
  ::curl_easy_setopt(easy.get(), CURLOPT_CUSTOMREQUEST, question.method.c_str());
  ::curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
  ::curl_easy_setopt(easy.get(), CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  ::curl_easy_setopt(easy.get(), CURLOPT_NOPROXY, "*");
  ::curl_easy_setopt(easy.get(), CURLOPT_HEADERFUNCTION, take_header);
  ::curl_easy_setopt(easy.get(), CURLOPT_HEADERDATA, &answer);
  ::curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, take_body);
  ::curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &answer);
  if (terms_.tls) ::curl_easy_setopt(easy.get(), CURLOPT_CAINFO, authority.c_str());
  if (!terms_.username.empty()) {
    ::curl_easy_setopt(easy.get(), CURLOPT_USERNAME, terms_.username.c_str());
    ::curl_easy_setopt(easy.get(), CURLOPT_PASSWORD, terms_.password.c_str());
  }
  if (question.method != "GET") {
    ::curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(question.body.size()));
    ::curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, question.body.c_str());
  }
  if (const CURLcode code = ::curl_easy_perform(easy.get()); code != CURLE_OK)
    return {.status = 502, .body = ::curl_easy_strerror(code)};
  long status = 0;
  ::curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

}  // namespace ferry::test

// SPDX-License-Identifier: Apache-2.0
// A client of a registry and its mirrors, for manifests and blobs. ABI: OCI distribution specification,
// "Pull"; distribution's token and OAuth2 authentication.
//
//  - Credentials go only to their registry and to the realm that it names. A redirect to another host
//    carries none, and that host's challenge is not answered.
//  - No https server can lead to plain http.
//  - 408, 429, 5xx and broken connections are retried, with growing pauses and Retry-After; a blob resumes.
//  - If a mirror fails or has another digest, the next server is asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/pinned.h"
#include "common/result.h"
#include "common/unique_fd.h"
#include "kata-manager/artifacts/artifacts.h"
#include "kata-manager/artifacts/content_hash.h"
#include "kata-manager/artifacts/image_reference.h"
#include "kata-manager/fetch/http.h"

namespace ferry::kata {

// Registry credentials in the format of Kubernetes Secrets. ABI: kubernetes.io/dockerconfigjson (`auths`,
// which has a map) and kubernetes.io/dockercfg (the map alone). The choice of a key for an image follows
// the kubelet.

struct RegistryCredentials {
  std::string username = {};
  std::string password = {};
  std::string identity_token = {};  ///< an OAuth2 refresh token; preferred to a password
  std::string registry_token = {};  ///< a ready bearer token
  bool empty() const {
    return username.empty() && password.empty() && identity_token.empty() && registry_token.empty();
  }
  bool operator==(const RegistryCredentials&) const = default;
};

class DockerConfig {
 public:
  /// An empty text has no credentials. Errc::invalid_config names the key and the fault, never a secret.
  static Result<DockerConfig> parse(std::string_view text);

  /// The credentials of the longest matching key: "HOST", "HOST:PORT" or "HOST/PATH", with or without a
  /// scheme, "/v1/" and "/v2/". A '*' stands for letters within one label of a host. Empty: no key matches.
  RegistryCredentials credentials(std::string_view registry, std::string_view repository) const;

  /// True: a helper program (credsStore, credHelpers) has more credentials. Ferry does not ask it.
  bool names_helpers() const { return names_helpers_; }

 private:
  struct Entry {
    std::string host;
    std::string path;
    std::string key;
    RegistryCredentials credentials;
  };
  std::vector<Entry> entries_;  // sorted by precedence
  bool names_helpers_ = false;
};

/// A server for an image, with its credentials and authentication.
struct RegistryEndpoint {
  std::string host;      ///< with its port, as given
  std::string base_url;  ///< "https://host/v2/repository", a prefix of "/manifests/…" and "/blobs/…"
  HttpOrigin origin;
  RegistryCredentials credentials = {};
  // The authentication that the server asked for.
  bool basic = false;
  std::string token = {};
};

/// The mirrors of an image's registry, then the registry, each with its own credentials. Errc::usage: an
/// endpoint is no such URL, or a registry is listed twice.
Result<std::vector<RegistryEndpoint>> registry_endpoints(const ImageReference& reference,
                                                         const FetchRequest& request,
                                                         const DockerConfig& credentials);

/// Authentication, redirects and retries with one server.
class RegistrySession {
 public:
  /// `endpoints`: only plain HTTP servers among these, and the loopback, may be reached without TLS.
  RegistrySession(HttpClient& http, const FetchPatience& patience,
                  std::function<void(std::chrono::milliseconds)> pause,
                  std::span<const RegistryEndpoint> endpoints);

  /// Returns one reply, after redirects and authentication. Any status is a reply. The URL of `question` is
  /// appended to the endpoint's base_url.
  Result<HttpReply> ask_once(RegistryEndpoint& endpoint, const HttpRequest& question);

  /// Calls `once` until its answer is final or the retries are used up, then returns the last answer. A
  /// gain of a MiB (`have`) resets the retries.
  Result<HttpReply> patiently(const std::function<Result<HttpReply>()>& once,
                              const std::function<std::uint64_t()>& have = {});

 private:
  Result<bool> authenticate(RegistryEndpoint& endpoint, const HttpReply& refusal);
  Result<std::string> token(const RegistryEndpoint& endpoint, const std::string& realm,
                            const std::string& service, const std::string& scope);

  Result<> may_be_asked(const HttpOrigin& origin) const;

  HttpClient* http_;
  FetchPatience patience_;
  std::function<void(std::chrono::milliseconds)> pause_;
  std::vector<HttpOrigin> in_the_clear_;
};

/// An unexpected reply in words: "HTTP 404: MANIFEST_UNKNOWN: manifest unknown". Errc::not_found: 404;
/// Errc::failed: 401 and 403; Errc::unreachable: a retry may help; else Errc::malformed_host.
Error error_of(const HttpReply& reply, const RegistryEndpoint& endpoint);

/// A file for a blob of known size and digest, which may hold a first part already. That part is read once,
/// on opening; later bytes are hashed as they are written.
class BlobFile {
 public:
  /// `file`: open for reading and writing; if longer than `size`, it is emptied. `path`: for messages.
  static Result<BlobFile> resume(UniqueFd file, Digest digest, std::uint64_t size, std::string path);

  std::uint64_t have() const { return have_; }
  std::uint64_t size() const { return size_; }
  const Digest& digest() const { return digest_; }
  /// True if parts come from an earlier try or from several answers.
  bool is_patched() const { return patched_; }
  /// True if the content has the digest. Call it last: add() must not follow.
  bool holds() { return hash_.hex() == digest_.hex; }
  int fd() const { return file_.get(); }

  /// Errc::malformed_host: more bytes than the blob's size.
  Result<> add(std::string_view bytes);
  /// The next bytes come from another answer.
  void next_answer() { patched_ = have_ > 0; }
  /// Empties the file.
  Result<> restart();
  /// Call it when all bytes are there. Syncs the file to the disk. Errc::failed: another digest; the file
  /// is emptied.
  Result<> finish();

 private:
  BlobFile(UniqueFd file, Digest digest, std::uint64_t size, std::string path);

  UniqueFd file_;
  Digest digest_;
  std::uint64_t size_ = 0;
  std::uint64_t have_ = 0;
  bool patched_ = false;
  std::string path_;
  ContentHash hash_;
};

class RegistryClient : Pinned {
 public:
  /// `endpoints`: registry_endpoints(), in order of trial. `pause`: absent: sleeps.
  RegistryClient(std::vector<RegistryEndpoint> endpoints, const FetchRequest& request,
                 std::function<void(std::chrono::milliseconds)> pause);

  struct Document {
    std::string bytes;
    std::string content_type;
    Digest digest;  ///< of the bytes; equals a requested digest
  };
  /// A manifest or an index, by tag or digest.
  Result<Document> manifest(const std::string& tag_or_digest);

  /// Downloads until the file is whole. `on_progress`: called as bytes arrive; false ends it with
  /// Errc::failed.
  Result<> blob(BlobFile& into, const std::function<bool()>& on_progress);

  /// The mirrors that failed, and why.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  template <typename T>
  Result<T> first_that_can(const std::function<Result<T>(RegistryEndpoint&)>& question);
  Result<Document> manifest_from(RegistryEndpoint& endpoint, const std::string& desired);
  Result<HttpReply> part_from(RegistryEndpoint& endpoint, BlobFile& into,
                              const std::function<bool()>& on_progress);
  Result<> blob_from(RegistryEndpoint& endpoint, BlobFile& into, const std::function<bool()>& on_progress);

  std::vector<RegistryEndpoint> endpoints_;
  const FetchRequest& request_;
  HttpClient http_;
  RegistrySession session_;
  std::vector<std::string> notes_;
  bool ended_ = false;  ///< `on_progress` returned false
};

}  // namespace ferry::kata

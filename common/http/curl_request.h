// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <curl/curl.h>
#include <memory>
#include <string>

#include "common/pinned.h"
#include "common/result.h"

namespace ferry {

struct FreeCurlList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
using CurlList = std::unique_ptr<curl_slist, FreeCurlList>;

/// A request by libcurl, with the rules for all servers: only HTTP and HTTPS, TLS 1.2 or newer, the server's
/// certificate and name are checked, a redirect is an answer and is not followed, a proxy gets no header of
/// the request, and no program waits for a connection without a limit. The caller performs it by handle().
class CurlRequest : Pinned {
 public:
  CurlRequest();
  ~CurlRequest();

  CURL* handle() const { return easy_; }
  /// Forgets the former request but for its open connections, and sets the rules.
  void begin(const std::string& url, std::chrono::milliseconds connect);
  /// Sets an option that only one of the callers has.
  template <typename Value>
  void set(CURLoption option, Value value) {
    ::curl_easy_setopt(easy_, option, value);
  }
  /// "Name: value".
  void add_header(const std::string& line);
  /// PEM, in place of the system's authorities; empty: these.
  void trust(const std::string& authorities);
  /// Sent as Basic, unless both are empty.
  void sign_in(const std::string& username, const std::string& password);
  /// Sends `body` by POST if no other method is set. `body` must outlive the request.
  void send(const std::string& body);

  /// `to` takes the answer by `bool take_header(std::string_view line)` and `bool take_body(std::string_view
  /// bytes)`, and must outlive the request. False ends it.
  template <typename To>
  void receive(To& to) {
    using Take = std::size_t (*)(const char*, std::size_t, std::size_t, void*);
    const Take header = [](const char* bytes, std::size_t size, std::size_t count, void* into) {
      return static_cast<To*>(into)->take_header({bytes, size * count}) ? size * count : 0;
    };
    const Take body = [](const char* bytes, std::size_t size, std::size_t count, void* into) {
      return static_cast<To*>(into)->take_body({bytes, size * count}) ? size * count : 0;
    };
    set(CURLOPT_HEADERFUNCTION, header);
    set(CURLOPT_HEADERDATA, &to);
    set(CURLOPT_WRITEFUNCTION, body);
    set(CURLOPT_WRITEDATA, &to);
  }

  /// The reason of a failed request. Errc::unreachable: no connection, cut off, or too slow, so a retry may
  /// help. Errc::failed: the certificate is not trusted, or the request cannot be made. Without a hint.
  Error failure(CURLcode code) const;
  /// The HTTP status of the answer, also while the answer comes; 0: none yet.
  int status() const;
  /// The value of Retry-After, at most a day; 0: none.
  std::chrono::seconds retry_after() const;

 private:
  CURL* easy_;
  CurlList headers_;
  std::array<char, CURL_ERROR_SIZE> why_{};
};

/// libcurl copies what is set with this.
curl_blob curl_blob_of(const std::string& text);
void append(CurlList& list, const std::string& line);

}  // namespace ferry

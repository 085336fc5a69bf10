// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kube/curl_transport.h"
#include "tests/kube/api_standin.h"
#include "tests/kube/certificates.h"
#include "tests/support/must.h"

namespace ferry::test {

/// The loop, the transport in it, and certificates: authorities `ca` and `other`; by `ca` those of `server`
/// (127.0.0.1), `named` (api.example), `ended` (127.0.0.1, but no longer), `client` and `next-client`.
class TransportTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    certificates() = std::make_unique<ScratchDirectory>();
    const ScratchDirectory& folder = *certificates();
    make_authority(folder, "ca");
    make_authority(folder, "other");
    make_certificate(folder, "server", "ca", "IP:127.0.0.1");
    make_certificate(folder, "named", "ca", "DNS:api.example");
    make_certificate(folder, "ended", "ca", "IP:127.0.0.1", -1);
    make_certificate(folder, "client", "ca", "DNS:client");
    make_certificate(folder, "next-client", "ca", "DNS:next-client");
    encrypt_key(folder, "client", "client-encrypted.key");
  }
  static void TearDownTestSuite() { certificates().reset(); }

  static std::string certificate(const std::string& file) { return (certificates()->path() / file).string(); }
  /// The words that let a stand-in have this certificate.
  static std::vector<std::string> with_tls(const std::string& name = "server",
                                           const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"--tls", certificate(name + ".pem"), certificate(name + ".key")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static kube::ClusterAccess access_to(const ApiStandin& server) {
    return {.server = {.tls = true, .host = "127.0.0.1", .port = server.port(), .path = {}},
            .authorities = {.text = {}, .file = certificate("ca.pem")}};
  }

  void open(kube::ClusterAccess access) {
    transport_ = std::make_unique<kube::CurlTransport>(*loop_, std::move(access));
  }

  struct Heard {
    std::string received;
    int pieces = 0;
    std::optional<Result<kube::ApiReply>> end;
    /// What a test compares; -1: it has not ended, or not with an answer.
    int status() const { return end && *end ? (*end)->status : -1; }
    std::string body() const { return end && *end ? (*end)->body : ""; }
    std::error_code error() const { return end && !*end ? end->error().code : std::error_code(); }
    std::string message() const { return end && !*end ? end->error().message : ""; }
    std::string hint() const { return end && !*end ? end->error().hint : ""; }
  };

  /// A request whose stream and end are written down; `heard` outlives it.
  kube::ApiTransport::Call send(kube::ApiRequest request, Heard& heard, bool streamed = false) {
    kube::ApiListener listener{.ended = [&heard](Result<kube::ApiReply> end) {
      EXPECT_FALSE(heard.end.has_value()) << "ended twice";
      heard.end = std::move(end);
    }};
    if (streamed) {
      listener.received = [&heard](std::string_view bytes) {
        EXPECT_FALSE(heard.end.has_value()) << "a byte behind the end";
        heard.received += bytes;
        ++heard.pieces;
      };
    }
    return transport_->send(std::move(request), std::move(listener));
  }

  /// Lets the loop run until then, or for far too long, which fails.
  void run_until(const std::function<bool()>& holds) {
    std::stop_source stop;
    bool late = false;
    const auto guard = loop_->at(EventLoop::Clock::now() + std::chrono::seconds(20), [&] {
      late = true;
      stop.request_stop();
    });
    // Looked at again whenever the loop has done something; a round without anything is short.
    std::function<void()> look = [&] {
      if (holds()) {
        stop.request_stop();
        return;
      }
      again_ = loop_->at(EventLoop::Clock::now() + std::chrono::milliseconds(1), look);
    };
    look();
    loop_->run(stop.get_token());
    loop_->cancel(again_);
    loop_->cancel(guard);
    ASSERT_FALSE(late) << "it does not come to that";
  }
  Heard ask(kube::ApiRequest request, bool streamed = false) {
    Heard heard;
    const auto call = send(std::move(request), heard, streamed);
    run_until([&] { return heard.end.has_value(); });
    transport_->cancel(call);
    return heard;
  }
  Heard get(const std::string& path) { return ask({.path = path}); }

  std::unique_ptr<EventLoop> loop_ = must(EventLoop::create());
  std::unique_ptr<kube::CurlTransport> transport_;

 private:
  static std::unique_ptr<ScratchDirectory>& certificates() {
    static std::unique_ptr<ScratchDirectory> folder;
    return folder;
  }
  EventLoop::Timer again_{};
};

}  // namespace ferry::test

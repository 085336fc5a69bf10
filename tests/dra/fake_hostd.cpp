// SPDX-License-Identifier: Apache-2.0
#include "tests/dra/fake_hostd.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

namespace ferry::test {
namespace {

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + ": " + std::strerror(errno));
}

UniqueFd listening(const std::filesystem::path& socket) {
  std::filesystem::create_directories(socket.parent_path());
  const UniqueFd folder(::open(socket.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + socket.filename().string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ::unlink(path.c_str());
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  expect(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "bind");
  expect(::listen(fd.get(), 16) == 0, "listen");
  return fd;
}

}  // namespace

FakeHostd::FakeHostd(const std::filesystem::path& socket)
    : socket_(listening(socket)), stop_(::eventfd(0, EFD_CLOEXEC)), acceptor_([this] { accept_all(); }) {}

FakeHostd::~FakeHostd() {
  ::eventfd_write(stop_.get(), 1);
  acceptor_.join();
  threads_.clear();  // waits for each
}

void FakeHostd::answer_by(Hook hook) {
  const std::scoped_lock lock(mutex_);
  hook_ = std::move(hook);
}

void FakeHostd::send_text(std::optional<std::string> text) {
  const std::scoped_lock lock(mutex_);
  text_ = std::move(text);
}

std::vector<api::ClaimRequest> FakeHostd::requests() const {
  const std::scoped_lock lock(mutex_);
  return requests_;
}

std::size_t FakeHostd::count(api::ClaimAction action) const {
  const auto all = requests();
  return static_cast<std::size_t>(std::ranges::count(all, action, &api::ClaimRequest::action));
}

std::map<std::string, int> FakeHostd::claims() const {
  const std::scoped_lock lock(mutex_);
  std::map<std::string, int> out;
  for (const auto& [claim, devices] : prepared_) out[claim] = made_.at(claim);
  return out;
}

void FakeHostd::accept_all() {
  while (true) {
    std::array<pollfd, 2> fds = {{{.fd = socket_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    UniqueFd connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) threads_.emplace_back([this, fd = connection.release()] { serve(UniqueFd(fd)); });
  }
}

void FakeHostd::serve(UniqueFd connection) {
  std::string packet(api::kLongestClaimMessage, '\0');
  const ssize_t size = ::recv(connection.get(), packet.data(), packet.size(), 0);
  if (size <= 0) return;  // the client has gone
  packet.resize(static_cast<std::size_t>(size));
  const auto request = api::read_claim_request(packet);
  if (!request) throw std::runtime_error(request.error().message);
  Hook hook;
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(*request);
    hook = hook_;
  }
  std::optional<Answer> answer;
  if (hook) answer = hook(*request);
  if (!answer) answer = usual(*request);
  std::string text = api::claim_answer_text(*answer);
  {
    const std::scoped_lock lock(mutex_);
    if (text_) text = *text_;
  }
  if (!text.empty()) ::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

FakeHostd::Answer FakeHostd::usual(const api::ClaimRequest& request) {
  const std::scoped_lock lock(mutex_);
  if (request.action == api::ClaimAction::unprepare) {
    prepared_.erase(request.claim);
    return std::vector<api::PreparedDevice>();
  }
  if (const auto known = prepared_.find(request.claim); known != prepared_.end()) return known->second;
  std::vector<api::PreparedDevice> devices;
  for (const api::DeviceOfPod& asked : request.devices) {
    api::PreparedDevice device;
    device.function = asked.device.gpu;
    if (!asked.device.type.empty()) device.function->function = 4;
    device.nodes = {{.path = "/dev/vfio/vfio", .mode = 0666U},
                    {.path = "/dev/vfio/" + std::to_string(100 + devices.size()), .mode = 0600U}};
    devices.push_back(std::move(device));
  }
  ++made_[request.claim];
  prepared_[request.claim] = devices;
  return devices;
}

}  // namespace ferry::test

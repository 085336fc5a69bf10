// SPDX-License-Identifier: Apache-2.0
// vGPUs of the fake kernel without mdev: what writes to nvidia/current_vgpu_type of a virtual function do.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_mdev.h"

namespace ferry::test {

/// Keeps what changes in the kernel's tree, so that a process which dies leaves what it has done.
class FakeVendorVfio {
 public:
  explicit FakeVendorVfio(FakeKernel& kernel);
  FakeVendorVfio(const FakeVendorVfio&) = delete;
  FakeVendorVfio& operator=(const FakeVendorVfio&) = delete;
  FakeVendorVfio(FakeVendorVfio&&) = delete;
  FakeVendorVfio& operator=(FakeVendorVfio&&) = delete;
  ~FakeVendorVfio() = default;

  /// Gives the attributes to each virtual function that a function has or is given later. Of the types' IDs
  /// the numbers count.
  void add_gpu(const std::string& address, const std::vector<FakeVgpuType>& types = l40s_types());
  /// A vGPU that somebody else makes, or takes away with 0 (not counted as a change).
  void set(const std::string& function, const std::string& number);
  /// A VM has this virtual function, or lets go of it.
  void hold(const std::string& function, bool held = true);

  /// Another rule than that all vGPUs of a GPU have one size: whether one more of `type` fits on a GPU that
  /// carries `present`. Absent: the usual one.
  using Rule = std::function<std::optional<bool>(const std::string& gpu, const FakeVgpuType& type,
                                                 const std::vector<FakeVgpuType>& present)>;
  void set_rule(Rule rule) { rule_ = std::move(rule); }
  /// Where vGPUs of a type may begin, and how many units they take. Absent: each takes one place, at any
  /// number below the type's maximum.
  struct TypePlaces {
    unsigned size = 1;
    std::vector<unsigned> starts;
  };
  using PlacesOf = std::function<std::optional<TypePlaces>(const std::string& gpu, const FakeVgpuType& type)>;
  void set_places(PlacesOf places) { places_of_ = std::move(places); }
  /// "35C at 0": each vGPU on a GPU with its place, sorted.
  std::vector<std::string> places_of_devices(const std::string& address) const;
  /// What can be created has changed by other means than a write.
  void refresh(const std::string& address) { update_creatable(address); }
  /// The types of a GPU's vGPUs.
  std::vector<FakeVgpuType> types_on(const std::string& address) const;

  /// "L40S-12Q 0000:17:00.4" of each vGPU on a GPU, sorted.
  std::vector<std::string> devices_on(const std::string& address) const;

  // Drivers that misbehave.
  bool swallow_creates = false;  ///< the write succeeds and does nothing
  bool swallow_removes = false;
  bool swallow_moves = false;
  bool has_placements = true;  ///< its vGPUs have places in memory, which can be chosen; first one free
  unsigned hidden_vgpus = 0;   ///< so many fewer can be created than the lists say
  std::string header = "ID    : vGPU Name\n";

 private:
  int write(const std::string& function, const std::string& value);
  int move(const std::string& function, const std::string& value);
  std::set<unsigned> places_on(const std::string& address) const;
  std::optional<TypePlaces> places_of(const std::string& gpu, const FakeVgpuType& type) const;
  bool is_free(const std::string& gpu, unsigned start, unsigned size, const std::string& except) const;
  /// The first free place for one more of a type; absent: there is none.
  std::optional<unsigned> free_place(const std::string& gpu, const FakeVgpuType& type) const;
  void add_function(const std::string& function);
  void update_creatable(const std::string& address);
  struct Occupancy {
    unsigned all = 0;
    unsigned framebuffer = 0;  ///< of each
    std::map<std::string, bool> free;
  };
  Occupancy occupancy_of(const std::string& address) const;
  bool creatable(const std::string& address, const Occupancy& present, const std::string& function,
                 const FakeVgpuType& type) const;
  const FakeVgpuType* find(const std::string& address, const std::string& number) const;
  std::string type_on(const std::string& function) const;
  std::string owner(const std::string& function) const;

  FakeKernel& kernel_;
  std::map<std::string, std::vector<FakeVgpuType>> gpus_;
  Rule rule_;
  PlacesOf places_of_;
};

}  // namespace ferry::test

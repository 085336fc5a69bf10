// SPDX-License-Identifier: GPL-2.0
#include "dma_ownership.h"

#include <linux/device/bus.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/vmalloc.h>

static struct pci_driver *watched;
static bool (*is_managed)(struct pci_dev *pdev);
static DEFINE_MUTEX(flag_lock); /* watched->driver_managed_dma */
static int (*real_configure)(struct device *dev);
static void (*real_cleanup)(struct device *dev);

static int dma_configure(struct device *dev)
{
	int ret;

	if (dev->driver != &watched->driver)
		return real_configure(dev);
	mutex_lock(&flag_lock);
	watched->driver_managed_dma = is_managed(to_pci_dev(dev));
	ret = real_configure(dev);
	mutex_unlock(&flag_lock);
	return ret;
}

static void dma_cleanup(struct device *dev)
{
	if (dev->driver != &watched->driver) {
		real_cleanup(dev);
		return;
	}
	mutex_lock(&flag_lock);
	watched->driver_managed_dma = is_managed(to_pci_dev(dev));
	real_cleanup(dev);
	mutex_unlock(&flag_lock);
}

/* The bus type is read-only memory from Linux 6.9 on, so the pointer is written by another mapping of its page. */
static int set_callback(const void *slot, const void *callback)
{
	struct page *page = virt_to_page(slot);
	void *alias = vmap(&page, 1, VM_MAP, PAGE_KERNEL);

	if (!alias)
		return -ENOMEM;
	WRITE_ONCE(*(const void **)(alias + offset_in_page(slot)), callback);
	vunmap(alias);
	return 0;
}

int watch_dma(struct pci_driver *driver, bool (*managed)(struct pci_dev *pdev))
{
	int ret;

	watched = driver;
	is_managed = managed;
	real_configure = pci_bus_type.dma_configure;
	real_cleanup = pci_bus_type.dma_cleanup;
	smp_wmb(); /* who comes through the bus finds all of it */
	ret = set_callback(&pci_bus_type.dma_cleanup, dma_cleanup);
	if (ret)
		return ret;
	ret = set_callback(&pci_bus_type.dma_configure, dma_configure);
	if (ret)
		set_callback(&pci_bus_type.dma_cleanup, real_cleanup);
	return ret;
}

void unwatch_dma(void)
{
	WARN_ON(set_callback(&pci_bus_type.dma_configure, real_configure));
	WARN_ON(set_callback(&pci_bus_type.dma_cleanup, real_cleanup));
	/* Nobody holds a lock that we could wait for; a tasks grace period ends the calls under way. */
	synchronize_rcu_tasks();
}

// Linux's side of `vmap-touch`, for scripts/linux-peer: each thread maps 4 pages, writes to each and unmaps them, again and again.
// Refuses to stay once it has printed what a cycle took, so that it can be loaded again with other numbers.
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/vmalloc.h>

#define PAGES 4

static int threads = 1;
static int cycles = 20000;
static bool ram;
module_param(threads, int, 0);
module_param(cycles, int, 0);
module_param(ram, bool, 0);

static DECLARE_COMPLETION(begin);
static DECLARE_COMPLETION(ended);
static atomic_t at_work;
static atomic64_t nanoseconds;

static bool cycle(struct page **pages)
{
	char *at = ram ? vm_map_ram(pages, PAGES, NUMA_NO_NODE) : vmap(pages, PAGES, VM_MAP, PAGE_KERNEL);
	int i;

	if (!at)
		return false;
	for (i = 0; i < PAGES; i++)
		WRITE_ONCE(at[i * PAGE_SIZE], 1);
	if (ram)
		vm_unmap_ram(at, PAGES);
	else
		vunmap(at);
	return true;
}

static int thread(void *nothing)
{
	struct page *pages[PAGES] = {};
	int i, left = cycles;
	u64 since;

	for (i = 0; i < PAGES; i++)
		pages[i] = alloc_page(GFP_KERNEL);
	wait_for_completion(&begin);
	since = ktime_get_ns();
	while (pages[PAGES - 1] && left && cycle(pages)) {
		left--;
		cond_resched();
	}
	atomic64_add(ktime_get_ns() - since, &nanoseconds);
	if (left)
		pr_err("vmap_cycles: %d cycles are missing\n", left);
	for (i = 0; i < PAGES; i++)
		if (pages[i])
			__free_page(pages[i]);
	// The module goes when the last one has ended.
	kthread_complete_and_exit(atomic_dec_and_test(&at_work) ? &ended : NULL, 0);
}

static int __init measure(void)
{
	int i;

	atomic_set(&at_work, threads);
	for (i = 0; i < threads; i++) {
		struct task_struct *task = kthread_create(thread, NULL, "vmap_cycles/%d", i);

		if (IS_ERR(task))
			return PTR_ERR(task);
		kthread_bind(task, i);
		wake_up_process(task);
	}
	complete_all(&begin);
	wait_for_completion(&ended);
	pr_err("vmap_cycles: ram %d threads %d ns %llu\n", ram, threads, (u64)atomic64_read(&nanoseconds) / threads / cycles);
	return -EAGAIN;
}

module_init(measure);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("How long kernel mappings take");

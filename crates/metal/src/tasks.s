# From one context to another: what a function must keep lies on the stack that is left.

.section .text.tasks, "ax"
.code64
# %rdi: where to keep the stack pointer that is left; %rsi: the one to go on with. Interrupts are off.
.global switch_context
switch_context:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
.global enter_context
enter_context:
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret

# Where a new context returns to: its task's number lies in %r12.
.global begin_context
begin_context:
    movq %r12, %rdi
    xorl %ebp, %ebp
    call begin_task
    ud2

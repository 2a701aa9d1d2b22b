# Accesses to addresses that may fault: all in one place, so that the page-fault handler knows them. The page is mapped
# twice: where the kernel is linked, for accesses to its own ranges; and where programs may execute it, and there it is
# entered in ring 3, so that the hardware judges each access as a program's. There is no stack in here: the stack
# pointer keeps the task's, which ring 3 cannot use.
# %rdi: the address; %rsi: how many words, or the value; %r8: where the handler leaves the error of a fault that it could
# not resolve. Gives 0 in %rax, or then 1, and a result in %rdx.

.section .text.user_access, "ax"
.code64
.global user_access_begin, user_access_end, user_access_failed
user_access_begin:

# Loads words in order, from the page's start again after its end; gives their sum.
.global user_read
user_read:
    xorl %edx, %edx
1:  addq (%rdi), %rdx
    addq $8, %rdi
    testl $0xff8, %edi
    jnz 2f
    subq $4096, %rdi
2:  decq %rsi
    jnz 1b
    jmp done

# Writes to words in order and changes none.
.global user_write
user_write:
    lock orq $0, (%rdi)
    addq $8, %rdi
    testl $0xff8, %edi
    jnz 2f
    subq $4096, %rdi
2:  decq %rsi
    jnz user_write
    jmp done

.global user_load
user_load:
    movq (%rdi), %rdx
    jmp done

.global user_store
user_store:
    movq %rsi, (%rdi)

    jmp done

# Executes what lies at the address: that leaves a result in %edx, and jumps to %rsi. Nothing else may change: not %r8.
.global user_execute
user_execute:
    leaq done(%rip), %rsi
    xorl %edx, %edx
    jmp *%rdi

# Copies %rdx bytes from %rsi to %rdi: one of them is a program's.
.global user_copy
user_copy:
    movq %rdx, %rcx
    shrq $3, %rcx
    rep movsq
    movl %edx, %ecx
    andl $7, %ecx
    rep movsb
    jmp done

# Loads an aligned word of 4 bytes.
.global user_load_word
user_load_word:
    movl (%rdi), %edx
    jmp done

# Replaces such a word if it is %esi, by %edx; gives what it was.
.global user_swap_word
user_swap_word:
    movl %esi, %eax
    lock cmpxchgl %edx, (%rdi)
    movl %eax, %edx

done:
    xorl %eax, %eax
    jmp leave
user_access_failed:
    movl $1, %eax
leave:
    movl %cs, %ecx
    testb $3, %cl
    jz 1f
    int $0x80
1:  ret
user_access_end:

# Into ring 3 at %rdx; `entry_leave` returns to the caller of this.
.section .text.interrupts, "ax"
.global enter_user
enter_user:
    movq %rsp, %rax
    pushq $0x1b                         # a program's data
    pushq %rax
    pushq $0x202                        # interrupts on
    pushq $0x23                         # a program's code
    pushq %rdx
    iretq

# Out of it. Nothing of an interrupt's stack is needed: rip 0, cs 8, flags 16, rsp 24.
.global entry_leave
entry_leave:
    movq 24(%rsp), %rsp
    movl $16, %ecx
    movl %ecx, %ss
    sti
    ret

# Accesses to addresses that may fault: all in one place, so that the page-fault handler knows them. Each gives 0, or,
# where the handler could not resolve a fault, 1, with the error where %r8 points to.
# %rdi: the address; %rsi: how many words, or the value; %rdx: where a result goes.

.section .text.user_access, "ax"
.code64
.global user_access_begin, user_access_end, user_access_failed
user_access_begin:

# Loads words in order, from the page's start again after its end; gives their sum.
.global user_read
user_read:
    xorl %eax, %eax
    xorl %r10d, %r10d
1:  addq (%rdi), %r10
    addq $8, %rdi
    testl $0xff8, %edi
    jnz 2f
    subq $4096, %rdi
2:  decq %rsi
    jnz 1b
    movq %r10, (%rdx)
    ret

# Writes to words in order and changes none.
.global user_write
user_write:
    xorl %eax, %eax
1:  lock orq $0, (%rdi)
    addq $8, %rdi
    testl $0xff8, %edi
    jnz 2f
    subq $4096, %rdi
2:  decq %rsi
    jnz 1b
    ret

.global user_load
user_load:
    xorl %eax, %eax
    movq (%rdi), %r10
    movq %r10, (%rdx)
    ret

.global user_store
user_store:
    xorl %eax, %eax
    movq %rsi, (%rdi)
    ret

user_access_failed:
    movl $1, %eax
    ret
user_access_end:

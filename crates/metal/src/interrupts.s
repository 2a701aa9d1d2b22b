# Entries from interrupts and faults. Each kind has a stack of its own (IST): what was interrupted keeps all that lies
# below its stack pointer. Interrupts stay off in all of them but the fault on a user address.

.macro SAVE
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
.endm

.macro CALL_RUST handler
    pushq %rbp
    movq %rsp, %rbp
    subq $512, %rsp
    andq $-16, %rsp
    fxsave64 (%rsp)
    cld
    call \handler
    fxrstor64 (%rsp)
    movq %rbp, %rsp
    popq %rbp
.endm

.macro RESTORE
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rdx
    popq %rcx
    popq %rax
.endm

.macro INTERRUPT entry, handler
.global \entry
\entry:
    SAVE
    CALL_RUST \handler
    RESTORE
    iretq
.endm

.section .text.interrupts, "ax"
.code64
INTERRUPT entry_ipi, on_ipi
INTERRUPT entry_kick, on_kick
INTERRUPT entry_timer, on_timer
INTERRUPT entry_spurious, on_spurious

# Exceptions that end the machine: 16 bytes each, the vector and an error code pushed.
.align 16
.global exceptions
exceptions:
vector = 0
.rept 32
.align 16
    .if (vector != 8) && (vector < 10 || vector > 14) && (vector != 17) && (vector != 21) && (vector != 29) && (vector != 30)
    pushq $0
    .endif
    .byte 0x6a, vector
    jmp exception_common
    vector = vector + 1
.endr
exception_common:
    SAVE
    movq %rsp, %rdi
    CALL_RUST on_exception
    ud2

# A page fault. One of a user access goes on upon the task's own stack, since it may wait and be switched away: all
# that is needed moves there, 128 bytes below what the task was using.
# On entry: error 0, rip 8, cs 16, flags 24, rsp 32, ss 40.
.align 16
.global entry_page_fault
entry_page_fault:
    pushq %rax
    pushq %rcx
    movq 24(%rsp), %rax
    testb $3, 32(%rsp)                  # all that ring 3 executes are such accesses
    jnz 2f
    movq $user_access_begin, %rcx
    cmpq %rcx, %rax
    jb 1f
    movq $user_access_end, %rcx
    cmpq %rcx, %rax
    jae 1f
2:
    movq 48(%rsp), %rax
    subq $128 + 13 * 8, %rax
    andq $-16, %rax
    movq 56(%rsp), %rcx                 # ss
    movq %rcx, 96(%rax)
    movq 48(%rsp), %rcx                 # rsp
    movq %rcx, 88(%rax)
    movq 40(%rsp), %rcx                 # flags
    movq %rcx, 80(%rax)
    movq 32(%rsp), %rcx                 # cs
    movq %rcx, 72(%rax)
    movq 24(%rsp), %rcx                 # rip
    movq %rcx, 64(%rax)
    movq 16(%rsp), %rcx                 # error
    movq %rcx, 56(%rax)
    movq %cr2, %rcx
    movq %rcx, 48(%rax)
    movq 8(%rsp), %rcx                  # the task's rax
    movq %rcx, 40(%rax)
    movq (%rsp), %rcx                   # the task's rcx
    movq %rcx, 32(%rax)
    leaq 32(%rax), %rsp
    pushq %rdx
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    movq %rsp, %rdi
    CALL_RUST on_user_fault
    RESTORE
    addq $16, %rsp
    iretq
1:  popq %rcx
    popq %rax
    pushq $14
    jmp exception_common

"""Ctrl-C and SIGTERM wait until a critical section ends; a second one does not wait."""

import os
import signal
import threading

import pytest

from delta_tta.engine.interrupts import Interrupts


def interrupt(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def section_with(*events):
    """Run a section in which these happen, an interrupt or an error; return what was done after each."""
    done = []

    def run():
        with Interrupts() as section:
            assert not section.came
            for event in events:
                if event is interrupt:
                    interrupt()
                    assert section.came
                else:
                    raise event
                done.append(event)

    return run, done


def test_an_interrupt_waits_until_the_section_is_left():
    run, done = section_with(interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == [interrupt]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_is_raised_where_the_section_asks_for_it_and_only_once():
    with Interrupts() as section:
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            section.leave()
        assert not section.came
        section.leave()


def test_a_second_interrupt_does_not_wait():
    run, done = section_with(interrupt, interrupt)
    with pytest.raises(KeyboardInterrupt):
        run()
    assert done == [interrupt]


def test_an_error_comes_before_an_interrupt_that_waits():
    run, done = section_with(interrupt, ArithmeticError)
    with pytest.raises(ArithmeticError):
        run()
    assert done == [interrupt]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_waits_where_python_handles_it():
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        with Interrupts() as section:
            interrupt(signal.SIGTERM)
            assert section.came
            assert came == []
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_signals_that_nothing_in_python_handles_stay_as_they_are():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_nothing_is_held_back():
    handlers = []

    def work():
        with Interrupts() as section:
            handlers.append(signal.getsignal(signal.SIGINT))
            assert not section.came

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert handlers == [signal.default_int_handler]

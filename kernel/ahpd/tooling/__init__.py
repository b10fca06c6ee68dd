"""Offering and running tools: which tools somebody sees, in which words, and what one call goes through.

Knows no tool, no socket and no agent.
"""

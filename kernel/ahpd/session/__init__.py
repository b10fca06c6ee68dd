"""Sessions, chats and turns: the product's nouns, and every verb on them.

Knows no socket, no tool and no agent by name.
"""
